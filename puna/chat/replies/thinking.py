"""What a model thinks, told from what it says."""

from __future__ import annotations

from typing import NamedTuple


class ThinkingTags(NamedTuple):
    open: str
    close: str


THINK = ThinkingTags("<think>", "</think>")


def ends_with_open_tag(prompt: str, tags: ThinkingTags = THINK) -> bool:
    """Whether the model begins inside its thoughts."""
    return prompt.rstrip().endswith(tags.open)
