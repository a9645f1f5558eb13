"""Renders conversations with the Jinja template that comes with a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import Any, NoReturn, Self

import jinja2

from puna.chat.errors import TemplateError
from puna.chat.messages import Message
from puna.chat.replies.calls.json_calls import JsonFormat
from puna.chat.replies.families.family import Family
from puna.chat.replies.families.harmony import writes_channels
from puna.chat.replies.families.in_json.json_format import format_by_example, json_family
from puna.chat.replies.families.plain import PLAIN
from puna.chat.replies.families.registry import family_of
from puna.chat.replies.thinking import THINK, ThinkingTags
from puna.chat.templates.call_style import EXAMPLE, CallStyle, call_style, written_call
from puna.chat.templates.parsers import PARSERS, parser_family
from puna.chat.templates.sandbox import LIST_CHANGES, Sandbox
from puna.chat.templates.variables import conversation_variables, with_written_calls
from puna.tokenizer import Tokenizer

MAX_SOURCE = 1 << 20
CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_SPLITS_THOUGHTS = re.compile(r"""split\(\s*['"]</think>""")


class ChatTemplate:
    """A template is a program of strangers: nothing here bounds the time and the memory that it takes.

    parser: a name that decides how replies are read; "": the template does. Thread-safe. Raises TemplateError
    for a source that is no template, and for a parser that is not known.
    """

    def __init__(self, source: str, *, bos_token: str, eos_token: str, parser: str = "") -> None:
        if not isinstance(source, str):
            raise TemplateError(f"the chat template is no text but {type(source).__name__}")
        if len(source) > MAX_SOURCE:
            raise TemplateError(f"the chat template has {len(source)} characters, more than {MAX_SOURCE}")
        self.source = source
        self._parser = parser
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._sandbox = Sandbox()
        self._sandbox.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        try:
            self._template = self._sandbox.from_string(source)
        except MemoryError:
            raise
        except Exception as error:  # a template may end in any
            raise _described(error) from error

    @classmethod
    def for_tokenizer(cls, source: Any, tokenizer: Tokenizer, *, parser: str = "") -> Self | None:
        """source: the model's own template, which may be anything; None: ChatML if the tokenizer knows
        ChatML's tokens; else there is none.

        Without a template a conversation is the contents of its messages, one behind the other. Raises
        TemplateError for a template that cannot be used.
        """
        if source is None:
            source = None if tokenizer.find("<|im_start|>") is None else CHATML
        if source is None:
            return None
        bos_id, eos_id = tokenizer.bos_id, tokenizer.eos_id
        return cls(
            source,
            bos_token="" if bos_id is None else tokenizer.token_text(bos_id),
            eos_token="" if eos_id is None else tokenizer.token_text(eos_id),
            parser=parser,
        )

    @cached_property
    def family(self) -> Family:
        """How replies are written."""
        if self._parser:
            return parser_family(self._parser)
        family = family_of(self.source)
        if family is PLAIN and mentions_tools(self.source):
            written = written_call(self._try_render, self._call_style)
            return json_family(format_by_example(written, EXAMPLE) or JsonFormat())
        return family

    @property
    def thinking(self) -> ThinkingTags | None:
        """What thoughts stand between; None: the family knows."""
        return None

    @property
    def supports_thinking(self) -> bool:
        """Whether a model with this template can think."""
        if self._parser:
            return PARSERS[self._parser].thinking
        return writes_thoughts(self.source)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt; `Tokenizer.encode_prompt` turns it into tokens. Raises TemplateError."""
        has_calls = any(message.tool_calls for message in messages)
        style = self._call_style if has_calls else CallStyle()
        if "enable_thinking" in variables:
            variables["thinking"] = variables["enable_thinking"]  # Granite and DeepSeek call it so
        return self._render(
            **variables,
            messages=conversation_variables(self._with_written_calls(messages, style), style),
            tools=list(tools) if tools else None,
            add_generation_prompt=add_generation_prompt,
        )

    def _with_written_calls(self, messages: Sequence[Message], style: CallStyle) -> Sequence[Message]:
        if not style.not_at_all or (written := self.family.written) is None:
            return messages
        return [
            with_written_calls(message, written) if message.tool_calls else message for message in messages
        ]

    @cached_property
    def _call_style(self) -> CallStyle:
        return call_style(self._try_render)

    def _try_render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        with suppress(TemplateError):
            return self._render(messages=messages, tools=None, add_generation_prompt=True)
        return ""

    def _render(self, **variables: Any) -> str:
        given = {**self._tokens, **variables}
        try:
            changes = any(change in self.source for change in LIST_CHANGES)
            text = self._template.render(deepcopy(given) if changes else given)
            text.encode()  # a template may write halves of characters, which no tokenizer takes
            return text
        except MemoryError:
            raise
        except Exception as error:  # a template may end in any
            raise _described(error) from error


def mentions_tools(source: str) -> bool:
    """Whether a template shows the model which tools there are."""
    return "tools" in source or "tool_call" in source


def writes_thoughts(source: str) -> bool:
    """Whether a template writes thoughts, or cuts them out of earlier answers."""
    tags = family_of(source).thinking or THINK
    if (tags.open in source and tags.close in source) or writes_channels(source):
        return True
    return "reasoning_content" not in source and _SPLITS_THOUGHTS.search(source) is not None


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateRuntimeError(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _described(error: BaseException) -> TemplateError:
    line = error.lineno if isinstance(error, jinja2.TemplateSyntaxError) else _line(error.__traceback__)
    where = f"line {line} of the chat template" if line else "chat template"
    message = error.message if isinstance(error, jinja2.TemplateSyntaxError) else str(error)
    return TemplateError(f"{where}: {message or type(error).__name__}")


def _line(trace: TracebackType | None) -> int | None:
    """Jinja rewrites its traces so that they show lines of the template."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
