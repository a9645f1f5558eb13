"""How a reply is to be read; a prompt says it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from puna.chat.replies.calls.json_calls import JsonFormat
from puna.chat.replies.families.family import Family
from puna.chat.replies.families.in_json.json_format import json_family
from puna.chat.replies.families.registry import FAMILIES
from puna.chat.replies.pieces import ReplyParser
from puna.chat.replies.tagged import Reading
from puna.chat.replies.thinking import ThinkingTags
from puna.chat.tools import Tool


class ReplyFormat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reply without thoughts, tags and calls is the default."""

    family: str = "plain"
    """In puna.chat.replies.families."""
    may_think: bool = False
    """Whether thoughts are told from the answer."""
    starts_thinking: bool = False
    """The prompt ends within thoughts."""
    shows_thoughts: bool = False
    """Whether anybody wants to see them."""
    may_call: bool = False
    """Tools were offered."""
    must_call: bool = False
    """There is nothing but thoughts and calls: other text is the beginning of a call that was cut off."""
    json: JsonFormat | None = None
    """Of calls, where there is no family."""
    thinking: ThinkingTags | None = None
    """What thoughts stand between, by the template; None: the family knows."""

    def thinking_of(self, family: Family) -> ThinkingTags | None:
        """What thoughts stand between; None: there are none, or the family's parser knows itself."""
        return (self.thinking or family.thinking) if self.may_think else None


def reply_parser(form: ReplyFormat, tools: Sequence[Tool]) -> ReplyParser:
    """tools: those that were offered."""
    family = json_family(form.json) if form.json is not None else FAMILIES[form.family]
    reading = Reading(
        tools=tools if form.may_call else (),
        thinking=form.thinking_of(family),
        starts_thinking=form.starts_thinking,
    )
    return family.new_parser(reading)
