"""Renders conversations with a template of Ollama's library, in the way that Ollama has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import cached_property
from typing import Any

import msgspec

from puna.chat.errors import TemplateError
from puna.chat.messages import Message
from puna.chat.replies.families.family import Family
from puna.chat.replies.families.in_json.json_format import format_by_tag, json_family
from puna.chat.replies.families.plain import PLAIN
from puna.chat.replies.families.registry import family_of
from puna.chat.replies.thinking import ThinkingTags
from puna.chat.templates.go.analysis import names_in, response, thinking_tags, tool_tag, up_to_response
from puna.chat.templates.go.values import message_values, tool_values, typescript_type
from puna.chat.templates.parsers import PARSERS, parser_family
from puna.chat.templates.template import MAX_SOURCE
from puna.chat.templates.variables import with_matched_results
from puna.gotemplate.errors import GoTemplateError
from puna.gotemplate.functions import Functions
from puna.gotemplate.printing import to_json
from puna.gotemplate.template import GoTemplate

_FUNCTIONS: Functions = {
    "json": to_json,
    "currentDate": lambda *_: date.today().isoformat(),
    "yesterdayDate": lambda *_: (date.today() - timedelta(days=1)).isoformat(),
    "toTypeScriptType": typescript_type,
}


class GoChatTemplate:
    """A template is a program of strangers: nothing here bounds the time and the memory that it takes.

    parser: a name that decides how replies are read; "": the template does. Thread-safe. Raises TemplateError
    for a source that is no template, and for a parser that is not known.
    """

    def __init__(self, source: str, *, parser: str = "") -> None:
        if len(source) > MAX_SOURCE:
            raise TemplateError(f"the chat template has {len(source)} characters, more than {MAX_SOURCE}")
        self.source = source
        self._parser = parser
        try:
            self._template = GoTemplate(source, _FUNCTIONS)
        except GoTemplateError as error:
            raise _described(error) from error
        self.names = names_in(self._template.bodies)
        if not self.names & {"messages", "response"}:
            self._template.body.append(response())

    @cached_property
    def thinking(self) -> ThinkingTags | None:
        """What thoughts stand between; None: the family knows."""
        return None if self._parser else thinking_tags(self._template.body)

    @cached_property
    def family(self) -> Family:
        """How replies are written."""
        if self._parser:
            return parser_family(self._parser)
        family = family_of(self.source)
        if family is PLAIN and "tools" in self.names:
            return json_family(format_by_tag(tool_tag(self._template.body), self.source))
        return family

    @property
    def supports_thinking(self) -> bool:
        """Whether a model with this template can think."""
        if self._parser:
            return PARSERS[self._parser].thinking
        return self.thinking is not None

    @property
    def fills_in(self) -> bool:
        """Whether it has a place for what follows a gap."""
        return "suffix" in self.names

    @property
    def renders_tool_results(self) -> bool:
        """Whether it has a place for what calls have given."""
        marks = ('eq .Role "tool"', "tool_response", "TOOL_RESULTS")
        return {"tools", "toolcalls"} <= self.names and any(mark in self.source for mark in marks)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        enable_thinking: bool | None = None,
        reasoning_effort: str | None = None,
    ) -> str:
        """The prompt. Raises TemplateError, also where no reply is to be asked for: such a template always
        asks.
        """
        if not add_generation_prompt:
            raise TemplateError("a Go template cannot be told not to ask for a reply")
        think = _think_values(enable_thinking, reasoning_effort)
        collated = list(_collated(with_matched_results(messages)))
        if "messages" not in self.names:
            return "".join(self._turns(collated, think))
        system = "\n\n".join(message.content for message in messages if message.role == "system")
        given = {"System": system, "Messages": message_values(collated), "Response": "", **think}
        return self._execute({**given, "Tools": tool_values(tools or [])})

    def fill_in(
        self,
        prompt: str,
        suffix: str,
        *,
        enable_thinking: bool | None = None,
        reasoning_effort: str | None = None,
    ) -> str:
        """The prompt for what belongs between two texts. Raises TemplateError."""
        think = _think_values(enable_thinking, reasoning_effort)
        return self._execute({"Prompt": prompt, "Suffix": suffix, "Response": "", **think})

    def _turns(self, messages: Sequence[Message], think: Mapping[str, Any]) -> Iterator[str]:
        """Where it knows one turn only, and so is executed for each: a system's, a user's and a reply, of
        which any may be missing. The last ends where the reply does: the model goes on there.
        """
        turn = {"System": "", "Prompt": "", "Response": ""}
        slots = {"system": "System", "user": "Prompt", "assistant": "Response"}
        for message in messages:
            begins = (message.role == "system" and (turn["Prompt"] or turn["Response"])) or (
                message.role == "user" and turn["Response"]
            )
            if begins:
                yield self._execute({**turn, **think})
                turn = dict.fromkeys(turn, "")
            if message.role in slots:
                turn[slots[message.role]] = message.content
        yield self._execute({**turn, **think}, last=True)

    def _execute(self, values: dict[str, Any], *, last: bool = False) -> str:
        body = up_to_response(self._template.body) if last else None
        try:
            text = self._template.execute(values, body)
            text.encode()  # a client may send halves of characters, which no tokenizer takes
            return text
        except GoTemplateError as error:
            raise _described(error) from error
        except (ValueError, OverflowError) as error:
            raise TemplateError(f"chat template: {error}") from error


def _think_values(enabled: bool | None, level: str | None) -> dict[str, Any]:
    """None: nothing is known of it."""
    return {
        "Think": bool(enabled),
        "ThinkLevel": (level or "medium") if enabled else "",
        "IsThinkSet": enabled is not None,
    }


def _collated(messages: Sequence[Message]) -> Iterator[Message]:
    """Those of the same role that follow each other are one, except for the results of tools."""
    latest: Message | None = None
    for message in messages:
        if latest is not None and latest.role == message.role != "tool":
            latest = msgspec.structs.replace(
                latest,
                content=f"{latest.content}\n\n{message.content}",
                tool_calls=latest.tool_calls + message.tool_calls,
                images=latest.images + message.images,
            )
            continue
        if latest is not None:
            yield latest
        latest = message
    if latest is not None:
        yield latest


def _described(error: GoTemplateError) -> TemplateError:
    where = f"line {error.line} of the chat template" if error.line else "chat template"
    return TemplateError(f"{where}: {error}")
