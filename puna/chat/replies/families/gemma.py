"""`<|tool_call>call:f{k:<|"|>v<|"|>}<tool_call|>`: Gemma 4, and FunctionGemma with other tags.

https://ai.google.dev/gemma/docs/core/prompt-formatting-gemma4
https://ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from puna.chat.errors import PromptError
from puna.chat.grammars.builder import GrammarBuilder, one_of
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.braced_values import BracedGrammar, read_braced
from puna.chat.replies.calls.parameters import parameters_of
from puna.chat.replies.families.family import Family
from puna.chat.replies.reader import NotACall, Steps, Tags
from puna.chat.replies.tagged import CallReader, tagged
from puna.chat.replies.thinking import ThinkingTags
from puna.chat.tools import Tool

_NAME = re.compile(r"[^{<\n]*")


@dataclass(frozen=True, slots=True)
class _Format:
    open: str
    close: str
    quote: str

    def read_calls(self, reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG002
        """One call; within strings its end does not count."""
        yield from reader.space()
        if not (yield from reader.skip("call:")):
            raise NotACall
        name = (yield from reader.word(_NAME)).strip()
        if not name or not (yield from reader.comes("{")):
            raise NotACall
        parts: list[str] = []
        outside, within = Tags((self.quote, self.close)), Tags((self.quote,))
        while (yield from reader.up_to(outside, parts.append)) == self.quote:
            parts.append(self.quote)
            parts.append((yield from reader.up_to(within, parts.append)))
        reader.give(name, read_braced("".join(parts), self.quote))

    def grammar(self, g: GrammarBuilder, task: ReplyTask) -> str:
        """The body of the start rule."""
        calls = one_of([self._call(g, tool) for tool in task.tools]) if task.tools else ""
        return g.tagged_reply(task, self.open, f'"call:" {calls} {g.literal(self.close)}', repeats=True)

    def _call(self, g: GrammarBuilder, tool: Tool) -> str:
        try:
            arguments = BracedGrammar(g, tool, self.quote).members(parameters_of(tool))
        except RecursionError as error:
            raise PromptError(f"the schema of {tool.function.name} is nested too deep") from error
        return g.rule("function", f"{g.plain(tool.function.name)} {arguments}")


_GEMMA4 = _Format("<|tool_call>", "<tool_call|>", '<|"|>')
_FUNCTION_GEMMA = _Format("<start_function_call>", "<end_function_call>", "<escape>")
_CHANNEL, _END_OF_CHANNEL = "<|channel>", "<channel|>"

GEMMA4 = Family(
    name="gemma4",
    recognizes=lambda source: _GEMMA4.open in source and _GEMMA4.quote in source,
    new_parser=tagged(_GEMMA4.read_calls, [_GEMMA4.open]),
    grammar=_GEMMA4.grammar,
    tags=(_GEMMA4.open, _GEMMA4.close, _GEMMA4.quote, _CHANNEL, _END_OF_CHANNEL),
    thinking=ThinkingTags(f"{_CHANNEL}thought", _END_OF_CHANNEL),
)
FUNCTION_GEMMA = Family(
    name="functiongemma",
    recognizes=lambda source: _FUNCTION_GEMMA.open in source,
    new_parser=tagged(_FUNCTION_GEMMA.read_calls, [_FUNCTION_GEMMA.open]),
    grammar=_FUNCTION_GEMMA.grammar,
    tags=(_FUNCTION_GEMMA.open, _FUNCTION_GEMMA.close, _FUNCTION_GEMMA.quote),
)
