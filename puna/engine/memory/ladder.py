"""What can be given up when memory is short, in the order in which it goes.

| what | where | what it costs |
|---|---|---|
| spare memory | Budget | nothing |
| cached KV, used longest ago first | Budget | computing or reading it, if somebody comes for it |
| KV of draft models | Drafts | drafts, for a while |
| transfers to and from a disk | WarmPrefixes, Sessions | what was to be kept, or read |
| sessions, then idle slots | Sessions, IdleSlots | as cached KV; sessions are somebody's wish |
| weights of idle models | IdleModels | reading them from the file, when they are wanted |
| running sequences, the last in order first | Scheduler | computing them again |

Taking a block takes spare and cached memory by the way; this is what comes after that. Where several
engines share the memory, Level names these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Items
from operator import attrgetter
from typing import Protocol

from puna.engine.caching.slot_policy import SlotPolicy
from puna.engine.memory.offers import Level
from puna.engine.model import Model
from puna.engine.sequences.sequence import Sequence
from puna.kv import Budget
from puna.kv.input_cache import InputCacheSlot
from puna.kv.limits import NOTHING, Limits


class Rung(Protocol):
    """One kind of memory that running sequences can go on without."""

    @property
    def num_bytes(self) -> int:
        """At most so much KV memory is gained by giving all of it up, now or soon."""

    def give_up_one(self) -> bool:
        """Gives up the part of it that was used longest ago; False: there is nothing."""


class Drafts:
    """KV that draft models have computed of running sequences."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self._models = models

    @property
    def num_bytes(self) -> int:
        return sum(s.draft.table.held_bytes for s in self._sequences() if s.draft is not None)

    def give_up_one(self) -> bool:
        return any(s.draft is not None and s.draft.give_up() for s in self._sequences())

    def _sequences(self) -> list[Sequence]:
        return [s for model in self._models.values() for s in reversed(model.running)]


class IdleSlots:
    """KV that slots keep although no sequence uses them."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self._models = models

    @property
    def num_bytes(self) -> int:
        return sum(slot.table.held_bytes for _, slot in self._all())

    def give_up_one(self) -> bool:
        """Empties the slot that was used longest ago."""
        oldest = min(self._all(), key=lambda item: item[1].last_used, default=None)
        if oldest is None:
            return False
        policy, slot = oldest
        policy.cache.empty_slot(slot)
        return True

    def _all(self) -> Iterator[tuple[SlotPolicy, InputCacheSlot]]:
        for model in self._models.values():
            if model.is_awake and isinstance(policy := model.policy, SlotPolicy):
                yield from ((policy, slot) for slot in policy.idle_slots())


class IdleModels:
    """Idle models: asleep, they take neither memory for weights nor for KV."""

    def __init__(self, models: Mapping[str, Model], budget: Budget, sleep: Callable[[Model], None]) -> None:
        self._models = models
        self._budget = budget
        self._sleep = sleep

    @property
    def num_bytes(self) -> int:
        """None where weights are not in the way of KV memory: what is guaranteed to an idle model stays."""
        return self.bytes_with(NOTHING)

    def bytes_with(self, more: Limits) -> int:
        """KV memory that there would be besides if limits were higher, and all of these slept."""
        budget, limits = self._budget, self._budget.limits + more
        room = limits.memory_bytes - budget.weight_bytes
        if room >= limits.kv_bytes:
            return limits.kv_bytes - budget.limit_bytes
        gives = self.gives
        limit = min(limits.kv_bytes, room + gives.memory_bytes - gives.kv_bytes)
        return limit - budget.limit_bytes + gives.kv_bytes

    @property
    def gives(self) -> Limits:
        """What all of them have beside KV that is cached or pinned: weights and guarantees."""
        idle = self.all()
        weights = sum(model.counted_bytes for model in idle)
        return Limits(0, weights).plus(sum(model.guaranteed_bytes for model in idle))

    def give_up_one(self) -> bool:
        return self._budget.are_weights_in_the_way and self.put_to_sleep()

    def put_to_sleep(self) -> bool:
        """The one that was used longest ago; False: there is none."""
        oldest = min(self.all(), key=attrgetter("last_used_s"), default=None)
        if oldest is not None:
            self._sleep(oldest)
        return oldest is not None

    def all(self) -> list[Model]:
        return [model for model in self._models.values() if model.is_idle]


class Ladder:
    """The rungs below running sequences."""

    def __init__(self, pins: Items[tuple[Level, Rung]], idle: IdleModels | None, budget: Budget) -> None:
        """pins: the first go first, and before idle models. idle: None: those keep their memory."""
        self.pins = tuple(pins)
        self._rungs = (*(rung for _, rung in pins), *([idle] if idle else []))
        self._idle = idle
        self._budget = budget

    @property
    def num_bytes(self) -> int:
        return self.pinned_bytes + self.idle_bytes

    @property
    def pinned_bytes(self) -> int:
        """On the rungs before idle models."""
        return sum(rung.num_bytes for _, rung in self.pins)

    @property
    def idle_bytes(self) -> int:
        """KV memory that would be there besides if all idle models slept."""
        return self._idle.num_bytes if self._idle else 0

    @property
    def more_bytes(self) -> int:
        """The same if other engines, too, gave what they could."""
        return self._idle.bytes_with(self._budget.elsewhere) if self._idle else 0

    def give_up_one(self) -> bool:
        return any(rung.give_up_one() for rung in self._rungs)
