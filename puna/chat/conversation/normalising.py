"""Renders any conversation that makes sense, also with templates that take only some.

Many templates raise where roles do not alternate, or at a second system message; others leave such a
message out without a word. A conversation is rendered as it came if that works. Else it is said in another
way, with as few changes as possible; which ones depends on the conversation and the template alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from puna.chat.conversation.repairs import (
    Repair,
    all_system_as_user,
    answer_before_user,
    calls_apart,
    calls_as_text,
    developer_as_system,
    later_system_as_user,
    merged_runs,
    one_system,
    orphans_as_user,
    short_ids,
    single_calls,
    user_first,
    without_empty_answers,
)
from puna.chat.errors import TemplateError
from puna.chat.messages import CalledFunction, Message, ToolCall
from puna.chat.templates.call_style import EXAMPLE

Render = Callable[[Sequence[Message]], str]
"""The text of messages. Raises TemplateError."""

# In the order in which they are applied: what makes runs of one role stands before what merges them.
_APPLIED: tuple[Repair, ...] = (
    developer_as_system,
    short_ids,
    calls_apart,
    single_calls,
    orphans_as_user,
    calls_as_text,
    one_system,
    later_system_as_user,
    all_system_as_user,
    without_empty_answers,
    merged_runs,
    user_first,
    answer_before_user,
)
# In the order in which they are tried: what changes less comes first.
_TRIED: tuple[Repair, ...] = (
    developer_as_system,
    short_ids,
    single_calls,
    one_system,
    later_system_as_user,
    without_empty_answers,
    merged_runs,
    user_first,
    answer_before_user,
    calls_apart,
    orphans_as_user,
    all_system_as_user,
    calls_as_text,
)
_WORD = re.compile(r"\w{4,64}", re.ASCII)
_LOOKED_AT = 1024  # characters of a result
_MOST_WORDS = 4


def with_known_roles(messages: Sequence[Message], source: str) -> list[Message]:
    """Few templates know of developers; some write any role. source: the template's."""
    return list(messages) if "developer" in source else developer_as_system(messages)


class Rendered(NamedTuple):
    """repairs: what was changed for that."""

    text: str
    repairs: list[Repair]
    is_complete: bool
    """Nothing is missing."""


def render_any(messages: Sequence[Message], render: Render, *, may_begin: bool = True) -> Rendered:
    """With what has to be changed for `render` to take the messages and leave none of the system's out.

    may_begin: the user may, where an answer comes first. Raises TemplateError if nothing helps.
    """
    error: TemplateError | None = None
    incomplete: Rendered | None = None
    chosen: list[Repair] = []
    while True:
        try:
            rendered = _render(messages, chosen, render)
            if rendered.is_complete:
                return _with_fewer(messages, rendered, render)
            incomplete = incomplete or rendered
        except TemplateError as raised:
            error = error or raised
        repair = _next_repair(messages, chosen, may_begin=may_begin)
        if repair is None:
            break
        chosen = [*chosen, repair]
    if incomplete is None:
        assert error is not None, "nothing was rendered"
        raise error
    return incomplete


def _next_repair(messages: Sequence[Message], chosen: list[Repair], *, may_begin: bool) -> Repair | None:
    """The first one that changes anything beyond what those chosen do."""
    so_far = repaired(messages, chosen)
    beginning = () if may_begin else (user_first, all_system_as_user)
    tried = [repair for repair in _TRIED if repair not in chosen and repair not in beginning]
    return next((repair for repair in tried if repaired(messages, [*chosen, repair]) != so_far), None)


def repaired(messages: Sequence[Message], repairs: Sequence[Repair]) -> list[Message]:
    """With these changes."""
    changed = list(messages)
    for repair in _APPLIED:
        if repair in repairs:
            changed = repair(changed)
    return changed


def _with_fewer(messages: Sequence[Message], rendered: Rendered, render: Render) -> Rendered:
    """Without the repairs that the last one makes superfluous, those that change most first."""
    for repair in reversed(rendered.repairs[:-1]):
        with suppress(TemplateError):
            fewer = [other for other in rendered.repairs if other is not repair]
            without = _render(messages, fewer, render)
            rendered = without if without.is_complete else rendered
    return rendered


def _render(messages: Sequence[Message], repairs: list[Repair], render: Render) -> Rendered:
    text = render(repaired(messages, repairs))
    is_complete = _has_all(text, messages) and _shows_calls(messages, repairs, render)
    return Rendered(text, repairs, is_complete)


def _has_all(text: str, messages: Sequence[Message]) -> bool:
    """Whether all messages of the system are there, and the first result: a template that leaves one out
    leaves out all. Results may be escaped in any way, but words stay words.
    """
    system = [message.content.strip() for message in messages if message.role in ("system", "developer")]
    result = next((message.content for message in messages if message.role == "tool"), "")
    words = _WORD.findall(result[:_LOOKED_AT])[:_MOST_WORDS]
    return all(content in text for content in system) and all(word in text for word in words)


def _shows_calls(messages: Sequence[Message], repairs: list[Repair], render: Render) -> bool:
    """Whether calls such as these are there: tried with one whose name stands nowhere else."""
    call = ToolCall(CalledFunction(EXAMPLE.name, EXAMPLE.arguments), "callnumb1")
    for content in {"Look." if message.content else "" for message in messages if message.tool_calls}:
        example = [
            Message("user", "?"),
            Message("assistant", content, tool_calls=[call]),
            Message("tool", "!"),
        ]
        with suppress(TemplateError):
            if EXAMPLE.name not in render(repaired(example, repairs)):
                return False
    return True
