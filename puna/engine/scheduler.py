"""Which sequences of which model take part in the next step."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from operator import attrgetter
from typing import NamedTuple

from puna.engine.batch import Slice
from puna.engine.sequence import Sequence
from puna.engine.settings import EngineSettings
from puna.kv import BlockPool
from puna.kv.sequence_table import blocks_for

_arrival = attrgetter("arrival")


class Step(NamedTuple):
    """One batch of one model."""

    model_id: str
    slices: list[Slice]


class Scheduler:
    """First come, first served, over all models; the models with work take turns, a step each.

    A sequence runs once the blocks for all its tokens are there. One that then cannot grow takes the blocks
    of the latest arrival, of any model, which waits at its old place in the queue. So the earliest sequence
    always gets on, and with it everybody.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.num_preemptions: Counter[str] = Counter()
        self._settings = settings
        self._pools: dict[str, BlockPool] = {}
        # By arrival, all of them. The order of the models is the order of their turns.
        self._waiting: list[Sequence] = []
        self._running: dict[str, list[Sequence]] = {}

    @property
    def has_work(self) -> bool:
        return bool(self._waiting) or any(self._running.values())

    def num_running(self, model_id: str) -> int:
        return len(self._running[model_id])

    def num_waiting(self, model_id: str) -> int:
        return sum(sequence.model_id == model_id for sequence in self._waiting)

    def add_model(self, model_id: str, pool: BlockPool) -> None:
        self._pools[model_id] = pool
        self._running[model_id] = []

    def remove_model(self, model_id: str) -> None:
        """Its sequences were removed before."""
        assert not self._running[model_id], "sequences run on a model that goes"
        del self._pools[model_id], self._running[model_id], self.num_preemptions[model_id]

    def add(self, sequence: Sequence) -> None:
        insort(self._waiting, sequence, key=_arrival)

    def remove(self, sequence: Sequence) -> None:
        """Forgets a sequence; its blocks are the caller's to release."""
        queue = self._waiting if sequence in self._waiting else self._running[sequence.model_id]
        queue.remove(sequence)

    def next_step(self) -> Step | None:
        """None if there is nothing to do."""
        self._admit()
        for model_id in list(self._running):
            if slices := self._decodes(model_id) + self._prefills(model_id):
                self._running[model_id] = self._running.pop(model_id)  # to the end of the line
                return Step(model_id, slices)
        assert not self._waiting, "sequences wait although all memory is free"
        return None

    def _admit(self) -> None:
        still_waiting = []
        for index, sequence in enumerate(self._waiting):
            running = self._running[sequence.model_id]
            if self._settings.max_running is not None and len(running) >= self._settings.max_running:
                still_waiting.append(sequence)
            elif self._has_room(sequence) and sequence.table.grow(sequence.num_tokens):
                running.append(sequence)  # and is the latest there: nobody overtakes, the latest is preempted
            else:
                # Those behind it wait, too: else a long prompt might wait forever for short ones.
                still_waiting += self._waiting[index:]
                break
        self._waiting = still_waiting

    def _has_room(self, sequence: Sequence) -> bool:
        """Whether it can start without being preempted as soon as the others grow by a block."""
        if not any(self._running.values()):
            return True
        num_growing = 1 + len(self._running[sequence.model_id])
        return self._pools[sequence.model_id].num_available >= blocks_for(sequence.num_tokens) + num_growing

    def _decodes(self, model_id: str) -> list[Slice]:
        # While this goes forward over the list, _make_room() may take sequences off its end.
        return [
            Slice(sequence, 1)
            for sequence in self._running[model_id]
            if sequence.num_pending == 1 and self._make_room(sequence)
        ]

    def _make_room(self, sequence: Sequence) -> bool:
        """Grows the table for the next token, at the cost of later arrivals; False: it was the latest."""
        while not sequence.table.grow(sequence.num_tokens):
            latest = max((running[-1] for running in self._running.values() if running), key=_arrival)
            self._preempt(latest)
            if latest is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._running[sequence.model_id].remove(sequence)
        sequence.rewind()
        self.add(sequence)
        self.num_preemptions[sequence.model_id] += 1

    def _prefills(self, model_id: str) -> list[Slice]:
        streaming = any(s.num_generated for running in self._running.values() for s in running)
        budget = self._settings.busy_prefill_tokens if streaming else self._settings.prefill_tokens
        slices = []
        for sequence in self._running[model_id]:
            if budget == 0:
                break
            if sequence.num_pending > 1:
                slices.append(Slice(sequence, min(sequence.num_pending, budget)))
                budget -= slices[-1].num_tokens
        return slices
