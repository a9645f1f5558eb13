"""What models thought in earlier turns."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from puna.chat.messages import Message
from puna.chat.replies.tagged import Reading, TaggedParser
from puna.chat.replies.thinking import THINK


def without_old_thoughts(messages: Sequence[Message]) -> list[Message]:
    """Answers before the last user message lose the thoughts they begin with.

    Some models do worse if they see them again, and some templates leave that to the caller.
    """
    last_user = max((i for i, message in enumerate(messages) if message.role == "user"), default=-1)
    return [
        _without_thoughts(message) if message.role == "assistant" and i < last_user else message
        for i, message in enumerate(messages)
    ]


def _without_thoughts(message: Message) -> Message:
    parser = TaggedParser(Reading(thinking=THINK))
    content = parser.add(message.content).content + parser.flush().content
    return msgspec.structs.replace(message, content=content)
