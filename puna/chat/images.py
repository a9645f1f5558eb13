"""Where images stand in a conversation, and in the prompt that a template makes of it.

A content has IMAGE where one of its images stands, in their order. While it is rendered, a mark that nobody
can guess stands there instead, so that no text is taken for an image; the prompt is then cut at the marks.
What templates write around images is left to who encodes them, as in llama.cpp's server.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from puna.chat.messages import Message

IMAGE = "\N{OBJECT REPLACEMENT CHARACTER}"
"""In the content of a message with images. In others it is a character like any."""
TOKENS_PER_IMAGE = 768
"""What an image is thought to take of the context, as in Ollama, before it is encoded."""


def joined(parts: Sequence[str | bytes], separator: str) -> tuple[str, list[bytes]]:
    """A content of texts and images, and the images; the separator stands between texts alone."""
    images = [part for part in parts if isinstance(part, bytes)]
    runs = []
    for is_image, run in groupby(parts, lambda part: isinstance(part, bytes)):
        texts = [IMAGE if isinstance(part, bytes) else part for part in run]
        runs.append("".join(texts) if is_image else _beside(images, separator.join(texts)))
    return "".join(runs), images


def _beside(images: Sequence[bytes], text: str) -> str:
    """A text in which none of them stands."""
    return text.replace(IMAGE, "") if images else text


def with_image_places(text: str, images: list[bytes]) -> tuple[str, list[bytes]]:
    """A content and its images, in their order there. As Ollama has it, the first ones stand where the text
    says `[img]`; those that find no place stand in front.
    """
    text = _beside(images, text)
    num_written = min(text.count("[img]"), len(images))
    text = IMAGE * (len(images) - num_written) + text.replace("[img]", IMAGE, num_written)
    return text, [*images[num_written:], *images[:num_written]]


class Cut(NamedTuple):
    """A prompt, cut where images stand."""

    pieces: list[str]
    """One more than images."""
    images: list[int]
    """Their numbers: a template may leave out some, or show one twice."""

    @property
    def text(self) -> str:
        """Without images."""
        return "".join(self.pieces)

    @property
    def shown(self) -> str:
        """As Ollama writes it."""
        head, *tails = self.pieces
        return head + "".join(f"[img-{i}]{tail}" for i, tail in zip(self.images, tails, strict=True))


def cut_raw(text: str, num_images: int) -> Cut:
    """A prompt that no template renders, whose images stand where it says `[img-0]`, `[img-1]` and so on;
    without any of that, in front.
    """
    numbers = "|".join(map(str, range(num_images)))
    parts = re.split(rf"\[img-({numbers})\]", text) if num_images else [text]
    if num_images and len(parts) == 1:
        return Cut([*[""] * num_images, text], list(range(num_images)))
    return Cut(parts[::2], [int(number) for number in parts[1::2]])


class ImageMarks:
    """Marks in the prompt of one request."""

    def __init__(self) -> None:
        self._secret = secrets.token_hex(8)
        self._pattern = re.compile(rf"\[img-{self._secret}-([0-9]{{1,9}})\]")

    def marked(self, messages: Iterable[Message]) -> list[Message]:
        """Their images are numbered through."""
        marked, number = [], 0
        for message in messages:
            if message.images:
                content = self._content(message, number)
                marked.append(msgspec.structs.replace(message, content=content))
                number += len(message.images)
            else:
                marked.append(message)
        return marked

    def _content(self, message: Message, first: int) -> str:
        marks = [f"[img-{self._secret}-{first + i}]" for i in range(len(message.images))]
        head, *tails = message.content.split(IMAGE)
        missing = max(len(marks) - len(tails), 0)
        placed = [*marks[missing:], *[""] * (len(tails) - len(marks))]
        texts = [mark + tail for mark, tail in zip(placed, tails, strict=True)]
        return "".join([*marks[:missing], head, *texts])

    def cut(self, text: str) -> Cut:
        """What a template has made of marked messages."""
        parts = self._pattern.split(text)
        return Cut(parts[::2], [int(number) for number in parts[1::2]])
