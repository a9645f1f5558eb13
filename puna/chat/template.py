"""Renders conversations with the Jinja template that comes with a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import Any, NoReturn, Self

import jinja2

from puna.chat.errors import TemplateError
from puna.chat.messages import Message, template_variables
from puna.chat.replies.families.family import Family
from puna.chat.replies.families.harmony import writes_channels
from puna.chat.replies.families.registry import family_of
from puna.chat.sandbox import LIST_CHANGES, Sandbox
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

    Thread-safe. Raises TemplateError for a source that is no template.
    """

    def __init__(self, source: str, *, bos_token: str, eos_token: str) -> None:
        if not isinstance(source, str):
            raise TemplateError(f"the chat template is no text but {type(source).__name__}")
        if len(source) > MAX_SOURCE:
            raise TemplateError(f"the chat template has {len(source)} characters, more than {MAX_SOURCE}")
        self.source = source
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
    def from_gguf(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> ChatTemplate | None:
        """The model's own template; ChatML if it has none but knows ChatML's tokens; else None.

        Without a template a conversation is the contents of its messages, one behind the other. Raises
        TemplateError for a template that cannot be used.
        """
        source = template_source(metadata, tokenizer)
        return None if source is None else cls.with_tokens(source, tokenizer)

    @classmethod
    def with_tokens(cls, source: str, tokenizer: Tokenizer) -> Self:
        """For this tokenizer's BOS and EOS. Raises TemplateError for a source that is no template."""
        bos_id, eos_id = tokenizer.bos_id, tokenizer.eos_id
        return cls(
            source,
            bos_token="" if bos_id is None else tokenizer.token_text(bos_id),
            eos_token="" if eos_id is None else tokenizer.token_text(eos_id),
        )

    @cached_property
    def family(self) -> Family:
        """How replies are written."""
        return family_of(self.source)

    @property
    def supports_thinking(self) -> bool:
        """Whether a model with this template can think."""
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
        given = {
            **self._tokens,
            **variables,
            "messages": [template_variables(message) for message in messages],
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
        }
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
    if ("<think>" in source and "</think>" in source) or writes_channels(source):
        return True
    return "reasoning_content" not in source and _SPLITS_THOUGHTS.search(source) is not None


def template_source(metadata: Mapping[str, Any], tokenizer: Tokenizer) -> Any:
    """The model's own template, which may be anything; ChatML if it has none but knows ChatML's tokens."""
    if (source := metadata.get("tokenizer.chat_template")) is not None:
        return source
    return None if tokenizer.find("<|im_start|>") is None else CHATML


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
