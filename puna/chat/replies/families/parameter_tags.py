"""A tag for each function and each parameter: `<tool_call><function=f><parameter=k>v</parameter></function>
</tool_call>` of Qwen3-Coder, Qwen 3.5 and Nemotron 3, and with other tags of Seed-OSS and MiniMax M2.

Strings are written as they are, everything else as JSON. What the grammar cannot say: parameters in another
order than that of the schema, and what text_values.py says of strings.
https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct/blob/main/chat_template.jinja
https://huggingface.co/ByteDance-Seed/Seed-OSS-36B-Instruct/blob/main/chat_template.jinja
https://huggingface.co/MiniMaxAI/MiniMax-M2/blob/main/docs/tool_calling_guide.md
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from puna.chat.grammars.builder import GrammarBuilder, more_calls, one_of
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.parameters import parameters_of, schemas_of
from puna.chat.replies.calls.text_values import read_value, text_up_to
from puna.chat.replies.families.family import Family
from puna.chat.replies.reader import NotACall, Steps
from puna.chat.replies.tagged import CallReader, tagged
from puna.chat.replies.thinking import THINK, ThinkingTags
from puna.chat.tools import Tool

_NAME = re.compile(r"[^<>\n\"]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    """open, close: around a section. function, parameter: what stands in front of their names, and the tags
    that end them. behind_name: of both.
    line: what stands between a value and its tags.
    many: sections may have more than one function.
    """

    open: str
    close: str
    function: tuple[str, str]
    parameter: tuple[str, str]
    behind_name: str
    line: str = ""
    many: bool = False

    @property
    def tags(self) -> tuple[str, ...]:
        """All."""
        begin, end = self.parameter
        return self.open, self.close, *self.function, begin, end

    def read_calls(self, reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG002
        """Takes a section; the tag that closes it may be missing."""
        begin, _ = self.function
        yield from reader.space()
        if not (yield from reader.skip(begin)):
            raise NotACall
        while True:
            yield from self._function(reader)
            yield from reader.space()
            if not (yield from reader.skip(begin)):
                break
        yield from reader.skip(self.close)

    def _function(self, reader: CallReader) -> Steps[None]:
        name = yield from self._name(reader)
        schemas = schemas_of(reader.tools, name)
        arguments: dict[str, Any] = {}
        while True:
            yield from reader.space()
            if (yield from reader.skip(self.function[1])):
                break
            if not (yield from reader.skip(self.parameter[0])):
                raise NotACall
            parameter = yield from self._name(reader)
            schema, end = schemas.get(parameter, {}), self.parameter[1]
            arguments[parameter] = yield from read_value(reader, schema, end, line=self.line)
        reader.give(name, arguments)

    def _name(self, reader: CallReader) -> Steps[str]:
        name = yield from reader.word(_NAME)
        if not name or not (yield from reader.skip(self.behind_name)):
            raise NotACall
        return name

    def grammar(self, g: GrammarBuilder, task: ReplyTask) -> str:
        """The body of the start rule."""
        call = one_of([self._call(g, tool) for tool in task.tools]) if task.tools else ""
        more = more_calls(f'"\\n" {call}') if self.many and task.parallel else ""
        section = f'"\\n" {call} {more} "\\n" {g.literal(self.close)}'
        return g.tagged_reply(task, self.open, section, repeats=not self.many)

    def _call(self, g: GrammarBuilder, tool: Tool) -> str:
        begin, end = self.parameter
        parameters = []
        for parameter in parameters_of(tool):
            head = f"{g.literal(begin)} {g.plain(parameter.name + self.behind_name)}"
            value = text_up_to(g, tool, parameter.schema, end, line=self.line)
            parameters.append(f'{head} {value} "\\n"' if parameter.required else f'({head} {value} "\\n")?')
        begin, end = self.function
        head = g.plain(tool.function.name + self.behind_name + "\n")
        return g.rule("function", f"{g.literal(begin)} {head} {' '.join(parameters)} {g.literal(end)}")


def _family(
    name: str, form: _Format, recognizes: Callable[[str], bool], thinking: ThinkingTags = THINK
) -> Family:
    return Family(
        name=name,
        recognizes=recognizes,
        new_parser=tagged(form.read_calls, [form.open]),
        grammar=form.grammar,
        tags=form.tags,
        thinking=thinking,
    )


_FUNCTION, _PARAMETER = ("<function=", "</function>"), ("<parameter=", "</parameter>")
SEED_OSS = _family(
    "seed-oss",
    _Format(
        open="<seed:tool_call>",
        close="</seed:tool_call>",
        function=_FUNCTION,
        parameter=_PARAMETER,
        behind_name=">",
    ),
    lambda source: "<seed:tool_call>" in source,
    ThinkingTags("<seed:think>", "</seed:think>"),
)
QWEN_CODER = _family(
    "qwen3-coder",
    _Format(
        open="<tool_call>",
        close="</tool_call>",
        function=_FUNCTION,
        parameter=_PARAMETER,
        behind_name=">",
        line="\n",
    ),
    lambda source: _FUNCTION[0] in source and _PARAMETER[0] in source,
)
MINIMAX = _family(
    "minimax-m2",
    _Format(
        open="<minimax:tool_call>",
        close="</minimax:tool_call>",
        function=('<invoke name="', "</invoke>"),
        parameter=('<parameter name="', "</parameter>"),
        behind_name='">',
        many=True,
    ),
    lambda source: "minimax:tool_call" in source and '<invoke name="' in source,
)
