"""Which sequences make way for others when memory is short."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

from puna.engine.memory.ladder import Ladder
from puna.engine.model import Model
from puna.engine.sequences.sequence import Sequence
from puna.kv import BLOCK_TOKENS
from puna.kv.blocks import blocks_for

_order = attrgetter("order")

_LOOK_AGAIN = 16  # steps after which a sequence that found no room tries again, whatever has changed


@dataclass(slots=True)
class Shortage:
    """Why the first that waits for a model could not start."""

    sequence: Sequence
    num_changes: int
    available_bytes: int
    missing_bytes: int
    num_steps: int = 0
    """Since then."""


class Contention:
    """Memory that is guaranteed to a model stays out of the order among sequences: others do not take it by
    coming earlier, and while a model has not got it, it takes it from those that have more than is guaranteed
    to them.
    """

    def __init__(self, models: Mapping[str, Model], ladder: Ladder) -> None:
        self._models = models
        self._ladder = ladder
        self._demands: dict[Model, int] = {}
        self._most: dict[Model, int] = {}  # as _most_bytes(), of the step that begins
        self._shortages: dict[Model, Shortage] = {}
        self._num_changes = 0  # of who runs

    def begin(self) -> None:
        """A step begins: the needs of running sequences have changed."""
        self._demands.clear()
        self._most.clear()
        if self._shortages:
            self._shortages = {model: short for model, short in self._shortages.items() if model.waiting}

    def started(self, model: Model, sequence: Sequence) -> None:
        """The sequence now runs."""
        self._num_changes += 1
        if model in self._demands:
            self._demands[model] += needed_bytes(sequence)

    def stopped(self, model: Model) -> None:
        """One of the model's sequences runs no more."""
        self._num_changes += 1
        self._demands.pop(model, None)

    @property
    def may_get_more(self) -> bool:
        """Whether there could be more memory than the limits allow now."""
        return self._ladder.more_bytes > self._ladder.idle_bytes

    def give_way(self) -> bool:
        """Gives up something that no running sequence needs to get on; False: there is nothing."""
        self._most.clear()
        return self._ladder.give_up_one()

    def give_way_to(self, model: Model, sequence: Sequence) -> bool:
        """The same, but not in vain: only if the sequence could then start."""
        return self.has_room(model, sequence, self._ladder.num_bytes) and self.give_way()

    def found_no_room(self, model: Model, sequence: Sequence, missing_bytes: int) -> None:
        """It had to give back what it had taken. missing_bytes: see missing_bytes()."""
        available = model.kv.available_bytes
        self._shortages[model] = Shortage(sequence, self._num_changes, available, missing_bytes)

    def shortages(self) -> list[Shortage]:
        """Of those that still come first among the waiting of their models."""
        return [s for model, s in self._shortages.items() if model.waiting and model.waiting[0] is s.sequence]

    def may_have_room(self, model: Model, sequence: Sequence) -> bool:
        """Whether to see whether it can start, which takes long for a long prompt: not while nothing has
        changed since it found no room.
        """
        shortage = self._shortages.get(model)
        if shortage is None or shortage.sequence is not sequence:
            return True
        shortage.num_steps += 1
        gained = model.kv.available_bytes - shortage.available_bytes
        return (
            shortage.num_changes != self._num_changes
            or gained >= shortage.missing_bytes
            or shortage.num_steps == _LOOK_AGAIN
        )

    def has_room(self, model: Model, sequence: Sequence, spare_bytes: int = 0) -> bool:
        """Whether it can start and grow, with the others, without being preempted at once.

        spare_bytes: that would be available, too.
        """
        return self.missing_bytes(model, sequence) <= spare_bytes

    def missing_bytes(self, model: Model, sequence: Sequence) -> int:
        """The bytes that are missing for it to start and grow, with the others, without being preempted."""
        kv = model.kv
        if not kv.groups:
            return 0
        others = [other for other in self._models.values() if other.running and other.kv.competes_with(kv)]
        if not others:
            return 0
        # Without room to grow where it could never have that.
        needed = min(needed_bytes(sequence), self._most_bytes(model) - sequence.table.held_bytes)
        needed += self._demand(model)
        if not kv.is_guaranteed(needed):  # or nobody else can take it
            needed += sum(
                other.kv.unguaranteed_bytes(self._demand(other)) for other in others if other is not model
            )
        return needed - kv.available_bytes

    def is_guaranteed(self, model: Model, sequence: Sequence) -> bool:
        """Whether the sequence, with those before it, stays within what is guaranteed to the model."""
        if not model.kv.groups:
            return True
        if model.guaranteed_bytes == 0:
            return False
        earlier = [other for other in model.running if other.order < sequence.order]
        return model.kv.is_guaranteed(sum(map(needed_bytes, [*earlier, sequence])))

    def victim(self, model: Model, sequence: Sequence, *, is_guaranteed: bool) -> Sequence | None:
        """The sequence that makes way for this one: the last in order, perhaps itself; None: all others are
        earlier.

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
        """Whether a table for so many tokens can never have enough memory."""
        if self._is_refused(model, sequence):
            return True
        table = sequence.table
        return table.missing_bytes(num_tokens) > 0 and table.least_bytes(num_tokens) > self._most_bytes(model)

    def _is_refused(self, model: Model, sequence: Sequence) -> bool:
        """Whether it lacked memory although nothing else ran, more than could be given up for it."""
        shortage = self._shortages.get(model)
        if shortage is None or shortage.sequence is not sequence or shortage.num_changes != self._num_changes:
            return False
        missing = shortage.missing_bytes - (model.kv.available_bytes - shortage.available_bytes)
        is_alone = not any(other.running for other in self._models.values())
        return is_alone and missing > self._ladder.pinned_bytes + self._ladder.more_bytes

    def most_at_once(self, model: Model, sequence: Sequence) -> int:
        """How many of its next tokens to compute in one step, where layers have windows: these slide when a
        step has ended, so a long chunk needs more than is kept of it. No running sequence makes way for that.
        """
        self._demands.pop(model, None)  # what others have taken since is not to be counted twice
        running = [other for other in self._models.values() if other.running]
        competing = [other for other in running if other.kv.competes_with(model.kv)]
        demand = sum(map(self._demand, competing)) - needed_bytes(sequence)
        room = model.kv.available_bytes + self._ladder.num_bytes - demand
        num_blocks = sequence.table.num_blocks + max(room // sequence.table.block_bytes, 1)
        return max(num_blocks * BLOCK_TOKENS - sequence.position, 1)

    def _most_bytes(self, model: Model) -> int:
        """What a table could take if everybody else gave up all that is not guaranteed to them."""
        if model not in self._most:
            self._most[model] = model.kv.most_bytes + self._ladder.more_bytes
        return self._most[model]

    def _demand(self, model: Model) -> int:
        """Bytes that the running sequences of a model will take for the tokens they have, and to grow."""
        if model not in self._demands:
            self._demands[model] = sum(map(needed_bytes, model.running))
        return self._demands[model]


def half_chunk(sequence: Sequence, num_tokens: int) -> int:
    """Fewer of its next tokens, for which the table needs half as many blocks; as many if that is one."""
    table, length = sequence.table, sequence.position + num_tokens
    num_blocks = blocks_for(length) - table.num_blocks
    if num_blocks <= 1:
        return num_tokens
    return (table.num_blocks + num_blocks // 2) * BLOCK_TOKENS - sequence.position


def needed_bytes(sequence: Sequence) -> int:
    """The bytes that it will take for its tokens, and for one block to grow."""
    num_tokens = min(sequence.num_tokens, sequence.context_length)
    return sequence.table.missing_bytes(num_tokens) + sequence.table.block_bytes
