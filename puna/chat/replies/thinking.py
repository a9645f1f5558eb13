"""Tells what a model thinks from what it says."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from puna.chat.messages import Message
from puna.chat.replies.pieces import Piece


class ThinkingTags(NamedTuple):
    open: str
    close: str


THINK = ThinkingTags("<think>", "</think>")


class _State(Enum):
    BEFORE = auto()  # nothing but whitespace, or a part of the open tag
    THINKING = auto()
    CONTENT = auto()


class ThinkingParser:
    """Text goes in as it comes; a tag never comes out, not even a part of it.

    Thinking is what stands between the tags, if the text begins with the open tag, or the prompt ended with
    it (`started`). Whitespace behind a tag is swallowed. Without an open tag everything is content.
    """

    def __init__(self, tags: ThinkingTags = THINK, *, started: bool = False) -> None:
        self._tags = tags
        self._state = _State.THINKING if started else _State.BEFORE
        self._swallow_space = started
        self._held = ""

    def add(self, text: str) -> Piece:
        """The text that is certain now."""
        thinking = content = ""
        self._held += text
        if self._state is _State.BEFORE:
            self._look_for_open_tag()
        if self._state is _State.THINKING:
            thinking = self._take_thinking()
        if self._state is _State.CONTENT:
            content, self._held = self._unspaced(), ""
        return Piece(thinking, content)

    def flush(self) -> Piece:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return Piece(thinking=held) if self._state is _State.THINKING else Piece(content=held)

    def _look_for_open_tag(self) -> None:
        seen = self._held.lstrip()
        if seen.startswith(self._tags.open):
            self._held = seen.removeprefix(self._tags.open)
            self._state, self._swallow_space = _State.THINKING, True
        elif not self._tags.open.startswith(seen):
            self._state = _State.CONTENT

    def _take_thinking(self) -> str:
        text = self._unspaced()
        before, tag, behind = text.partition(self._tags.close)
        if tag:
            self._held = behind
            self._state, self._swallow_space = _State.CONTENT, True
            return before
        num_held = overlap(text, self._tags.close)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def _unspaced(self) -> str:
        text = self._held.lstrip() if self._swallow_space else self._held
        self._swallow_space = self._swallow_space and not text
        return text


def ends_with_open_tag(prompt: str, tags: ThinkingTags = THINK) -> bool:
    """Whether the model begins inside its thoughts."""
    return prompt.rstrip().endswith(tags.open)


def without_old_thoughts(messages: Sequence[Message], tags: ThinkingTags = THINK) -> list[Message]:
    """Answers before the last user message lose the thoughts they begin with.

    Some models do worse if they see them again, and some templates leave that to the caller.
    """
    last_user = max((i for i, message in enumerate(messages) if message.role == "user"), default=-1)
    return [
        _without_thoughts(message, tags) if message.role == "assistant" and i < last_user else message
        for i, message in enumerate(messages)
    ]


def _without_thoughts(message: Message, tags: ThinkingTags) -> Message:
    parser = ThinkingParser(tags)
    content = parser.add(message.content).content + parser.flush().content
    return msgspec.structs.replace(message, content=content)


def overlap(text: str, tag: str) -> int:
    """Length of the longest beginning of `tag`, short of all of it, that `text` ends with."""
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(tag[:n])), 0)
