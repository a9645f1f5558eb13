"""Stops a stream of text at the first stop string."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Text goes in as it comes, and out once it cannot be part of a stop string any more.

    The stop string that is complete first ends the text, whatever pieces the text comes in; if two are
    complete at the same character, the longer one. Neither it nor anything behind it comes out.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.found = False
        """A stop string was there: from now on nothing comes out."""

    def add(self, text: str) -> str:
        """The text that may be shown now."""
        if self.found:
            return ""
        text = self._held + text
        matches = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if matches:
            self.found, self._held = True, ""
            return text[: min(matches)[1]]
        num_held = max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def flush(self) -> str:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, tag: str) -> int:
    """Length of the longest beginning of `tag`, short of all of it, that `text` ends with."""
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(tag[:n])), 0)
