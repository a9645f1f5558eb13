"""Where a sequence's state is to be kept for others; only of models with recurrent layers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort


class SnapshotPlan:
    """Positions are numbers of tokens."""

    def __init__(self) -> None:
        self.useful: set[int] = set()
        """Where others are likely to part from this sequence, as far as that is known."""
        self.latest = 0
        """The last of the snapshots that it began with or took."""
        self._stops: list[int] = []

    def begin(self, position: int, stops: list[int]) -> None:
        """The sequence goes on from a snapshot there, or from 0. stops: see add_stop()."""
        self.useful = {position, *stops}
        self.latest = position
        self._stops = sorted(set(stops))

    def add_stop(self, position: int) -> None:
        """A step is to end there, so that a snapshot can be taken."""
        if position not in self.useful:
            self.useful.add(position)
            insort(self._stops, position)

    def is_stop(self, position: int) -> bool:
        index = bisect_left(self._stops, position)
        return self._stops[index : index + 1] == [position]

    def room(self, position: int, num_tokens: int) -> int:
        """How many of so many tokens behind `position` come before the next stop."""
        index = bisect_right(self._stops, position)
        return min(self._stops[index] - position, num_tokens) if index < len(self._stops) else num_tokens
