"""Tells thoughts from answers where a model writes in channels: OpenAI's harmony format, that of gpt-oss.

A reply is one message after the other, `<|channel|>NAME ...<|message|>TEXT<|end|><|start|>assistant`. What is
in the channel "analysis" are thoughts. https://cookbook.openai.com/articles/openai-harmony
"""

from __future__ import annotations

import re

from puna.chat.replies.families.family import Family
from puna.chat.replies.pieces import Piece
from puna.chat.replies.reader import overlap
from puna.chat.replies.tagged import Reading

_MESSAGE = "<|message|>"
_TAGS = ("<|channel|>", _MESSAGE, "<|end|>", "<|start|>", "<|constrain|>")
_TAG = re.compile("|".join(map(re.escape, _TAGS)))
_THOUGHTS = "analysis"


class HarmonyParser:
    """Text goes in as it comes; nothing of a tag or of a message's head comes out.

    Text without tags is content.
    """

    def __init__(self) -> None:
        self._head: str | None = None  # what is known of a message's head; None: within its text
        self._thinks = False
        self._held = ""

    def add(self, text: str) -> Piece:
        """The text that is certain now."""
        *parts, rest = _split(self._held + text)
        piece = Piece()
        for before, tag in parts:
            piece += self._taken(before)
            self._meet(tag)
        num_held = max(overlap(rest[0], tag) for tag in _TAGS)
        certain, self._held = rest[0][: len(rest[0]) - num_held], rest[0][len(rest[0]) - num_held :]
        return piece + self._taken(certain)

    def flush(self) -> Piece:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return self._taken(held)

    def _taken(self, text: str) -> Piece:
        if self._head is not None:
            self._head += text
            return Piece()
        return Piece(thinking=text) if self._thinks else Piece(content=text)

    def _meet(self, tag: str) -> None:
        if tag == _MESSAGE:
            self._thinks = (self._head or "").lstrip().startswith(_THOUGHTS)
            self._head = None
        elif tag != "<|constrain|>":
            self._head = ""


def writes_channels(source: str) -> bool:
    """Whether replies to prompts of a chat template are in channels."""
    return "<|channel|>" in source and _MESSAGE in source


def _split(text: str) -> list[tuple[str, str]]:
    """(text, the tag behind it) one after the other; the last without a tag."""
    parts, begin = [], 0
    for match in _TAG.finditer(text):
        parts.append((text[begin : match.start()], match.group()))
        begin = match.end()
    return [*parts, (text[begin:], "")]


def _new_parser(reading: Reading) -> HarmonyParser:  # noqa: ARG001
    return HarmonyParser()


HARMONY = Family(
    name="harmony", recognizes=writes_channels, new_parser=_new_parser, tags=_TAGS, thinking=None
)
