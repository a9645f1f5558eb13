"""Who makes way for whom when memory is short."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from puna.engine.ladder import Ladder
from puna.engine.model import Model
from puna.engine.scheduling.sequence import Sequence

_order = attrgetter("order")


class Contention:
    """Memory that is guaranteed to a model stays out of the order among sequences: others do not take it by
    coming earlier, and while a model has not got it, it takes it from those that have more than is guaranteed
    to them.
    """

    def __init__(self, models: Mapping[str, Model], ladder: Ladder) -> None:
        self._models = models
        self._ladder = ladder
        self._demands: dict[Model, int] = {}

    def begin(self) -> None:
        """Of a step: what running sequences need has changed."""
        self._demands.clear()

    def started(self, model: Model, sequence: Sequence) -> None:
        """It is among those that run now."""
        if model in self._demands:
            self._demands[model] += needed_bytes(sequence)

    def stopped(self, model: Model) -> None:
        """One of its sequences is not, any more."""
        self._demands.pop(model, None)

    def give_way(self) -> bool:
        """Gives up something that no running sequence needs to get on; False: there is nothing."""
        return self._ladder.give_up_one()

    def give_way_to(self, model: Model, sequence: Sequence) -> bool:
        """The same, but not in vain: only if the sequence could then start."""
        return self.has_room(model, sequence, self._ladder.num_bytes) and self._ladder.give_up_one()

    def has_room(self, model: Model, sequence: Sequence, spare_bytes: int = 0) -> bool:
        """Whether it can start without being preempted as soon as it and the others grow.

        spare_bytes: that would be available, too.
        """
        kv = model.kv
        others = [other for other in self._models.values() if other.running and other.kv.competes_with(kv)]
        if not others:
            return True
        # Without room to grow where it could never have that.
        needed = min(
            needed_bytes(sequence), kv.most_bytes + self._ladder.idle_bytes - sequence.table.held_bytes
        )
        needed += self._demand(model)
        if not kv.is_guaranteed(needed):  # or nobody else can take it
            needed += sum(
                other.kv.unguaranteed_bytes(self._demand(other)) for other in others if other is not model
            )
        return needed <= kv.available_bytes + spare_bytes

    def is_guaranteed(self, model: Model, sequence: Sequence) -> bool:
        """Whether it, and those before it, will take no more than is guaranteed to the model."""
        if model.guaranteed_bytes == 0:
            return False
        earlier = [other for other in model.running if other.order < sequence.order]
        return model.kv.is_guaranteed(sum(map(needed_bytes, [*earlier, sequence])))

    def victim(self, model: Model, sequence: Sequence, *, is_guaranteed: bool) -> Sequence | None:
        """Who makes way for a sequence: the last in order, perhaps itself; None: all are before it.

        is_guaranteed: it wants no more than is guaranteed to its model.
        """
        others = [
            other.running[-1]
            for other in self._models.values()
            if other is not model and other.running and other.kv.gives_to(model.kv)
        ]
        if is_guaranteed and others:
            return max(others, key=_order)
        last = max(others + model.running[-1:], key=_order, default=None)
        return None if last is None or last.order < sequence.order else last

    def is_infeasible(self, model: Model, sequence: Sequence, num_tokens: int) -> bool:
        """Whether a table for so many tokens is more than there can be."""
        table = sequence.table
        missing = table.missing_bytes(num_tokens)
        return missing > 0 and table.held_bytes + missing > model.kv.most_bytes + self._ladder.idle_bytes

    def _demand(self, model: Model) -> int:
        """Bytes that the running sequences of a model will take for the tokens they have, and to grow."""
        if model not in self._demands:
            self._demands[model] = sum(map(needed_bytes, model.running))
        return self._demands[model]


def needed_bytes(sequence: Sequence) -> int:
    """What it will take for the tokens it has, and for one block to grow."""
    num_tokens = min(sequence.num_tokens, sequence.context_length)
    return sequence.table.missing_bytes(num_tokens) + sequence.table.block_bytes
