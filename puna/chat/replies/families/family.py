"""What is to be known of the way in which a family of models writes its replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.json_calls import JsonFormat
from puna.chat.replies.pieces import Call, ReplyParser
from puna.chat.replies.tagged import Reading
from puna.chat.replies.thinking import THINK, ThinkingTags
from puna.chat.tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """name: what a prompt calls the family by.
    recognizes: whether the source of a chat template (Jinja or Go) is one of the family's.
    new_parser: of one reply; tagged() makes it for most families.
    grammar: adds to a grammar whatever it takes for replies that do the task, and returns the body of its
        start rule; None: such replies cannot be held to a grammar.
    tags: what replies may contain beside text; those that are control tokens must be shown.
    thinking: what thoughts stand between; None: its parser knows itself.
    json: what a template has in place of a family of its own.
    written: calls as the model writes them, for templates that leave that to their callers.
    written_names: what functions are called where that is not their names.
    efforts: what levels of thinking are called where that is not their names.
    """

    name: str
    recognizes: Callable[[str], bool]
    new_parser: Callable[[Reading], ReplyParser]
    grammar: Callable[[GrammarBuilder, ReplyTask], str] | None = None
    tags: tuple[str, ...] = ()
    thinking: ThinkingTags | None = THINK
    json: JsonFormat | None = None
    written: Callable[[Sequence[Call]], str] | None = None
    written_names: Callable[[Sequence[Tool]], Mapping[str, str]] | None = None
    efforts: Mapping[str, str] = field(default_factory=dict)
