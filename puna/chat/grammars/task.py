"""What a reply is to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from puna.chat.replies.thinking import ThinkingTags
from puna.chat.tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyTask:
    """tools: those that may be called; none: no calls.
    must_call: the reply is calls, with no text but thoughts.
    parallel: whether there may be several calls.
    answer: a term of the grammar for what it is otherwise; None: any text.
    thinking: what thoughts stand between, if the model may think first; None: it does not.
    starts_thinking: the prompt has opened the thoughts.
    """

    tools: Sequence[Tool] = ()
    must_call: bool = False
    parallel: bool = True
    answer: str | None = None
    thinking: ThinkingTags | None = None
    starts_thinking: bool = False
