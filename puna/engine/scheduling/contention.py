"""Who makes way for whom when memory is short."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Protocol

from puna.engine.scheduling.lane import Lane, needed_blocks
from puna.engine.scheduling.sequence import Sequence
from puna.kv.blocks import blocks_for

_order = attrgetter("order")


class Pins(Protocol):
    """Blocks that are kept although no sequence needs them now."""

    @property
    def pinned_bytes(self) -> int:
        """At most so much is gained by giving all of them up, at once or soon."""

    def unpin_oldest(self) -> bool:
        """Gives some of them up; False: there are none."""


class Contention:
    """Memory that a model is sure of stays out of the order among sequences: others do not take it by coming
    earlier, and while a model has not got it, it takes it from those that have more than they are sure of.
    """

    def __init__(self, lanes: Mapping[str, Lane], pins: Pins) -> None:
        self._lanes = lanes
        self._pins = pins

    def give_way(self) -> bool:
        """Gives up something that no running sequence needs to get on; False: there is nothing."""
        return self._give_up_guesses() or self._pins.unpin_oldest()

    def give_way_to(self, lane: Lane, sequence: Sequence) -> bool:
        """The same, but not in vain: only if the sequence could then start."""
        if self._give_up_guesses():
            return True
        return self.has_room(lane, sequence, self._pins.pinned_bytes) and self._pins.unpin_oldest()

    def has_room(self, lane: Lane, sequence: Sequence, spare_bytes: int = 0) -> bool:
        """Whether it can start without being preempted as soon as it and the others grow.

        spare_bytes: that would be available, too.
        """
        pool = lane.pool
        others = [other for other in self._lanes.values() if other.running and other.pool.competes_with(pool)]
        if not others:
            return True
        # Without room to grow where it could never have that.
        needed = min(needed_blocks(sequence), pool.most_blocks - sequence.table.num_blocks)
        needed += sum(map(needed_blocks, lane.running))
        needed_bytes = needed * pool.block_bytes
        if not pool.is_sure_of(needed):  # or nobody else can take it
            needed_bytes += sum(
                other.pool.shared_bytes(sum(map(needed_blocks, other.running)))
                for other in others
                if other is not lane
            )
        return needed_bytes <= pool.num_available * pool.block_bytes + spare_bytes

    def victim(self, lane: Lane, sequence: Sequence, *, is_sure: bool) -> Sequence | None:
        """Who makes way for a sequence: the last in order, perhaps itself; None: all are before it.

        is_sure: it wants no more than its model is sure of.
        """
        others = [
            other.running[-1]
            for other in self._lanes.values()
            if other is not lane and other.running and other.pool.gives_to(lane.pool)
        ]
        if is_sure and others:
            return max(others, key=_order)
        last = max(others + lane.running[-1:], key=_order, default=None)
        return None if last is None or last.order < sequence.order else last

    def is_hopeless(self, lane: Lane, sequence: Sequence, num_tokens: int) -> bool:
        """Whether a table for so many tokens is more than there can be."""
        return blocks_for(num_tokens) > max(lane.pool.most_blocks, sequence.table.num_blocks)

    def _give_up_guesses(self) -> bool:
        """Takes what a draft model has computed of a sequence; False: there is nothing."""
        running = (s for lane in self._lanes.values() for s in reversed(lane.running))
        return any(s.draft is not None and s.draft.give_up() for s in running)
