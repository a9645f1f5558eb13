"""Sequences that wait, run, and stop: each such change is made here, and gives memory back as it must."""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Mapping
from operator import attrgetter
from typing import NamedTuple

from puna.engine.faults import unforeseen
from puna.engine.model import Model
from puna.engine.scheduling.contention import Contention
from puna.engine.sequences.sequence import Sequence

log = logging.getLogger(__name__)

_order = attrgetter("order")


class Infeasible(NamedTuple):
    """A sequence that needs more memory than there can be for it, or with which something is wrong."""

    sequence: Sequence
    reason: str


class Lifecycle:
    """The queues of all models, in order, and what they give back when they change."""

    def __init__(self, models: Mapping[str, Model], contention: Contention) -> None:
        """models: by id, those asleep included."""
        self.models = models
        self.contention = contention
        self.preempted: set[Sequence] = set()
        """Since the last step began."""
        self.looking: set[Sequence] = set()
        """For what is on disk, again: they are added when that is over."""
        self.infeasible: list[Infeasible] = []
        self.now_s = 0.0
        """Virtual time of the model that ran last."""

    def add(self, sequence: Sequence) -> None:
        """It waits."""
        model = self.models[sequence.model_id]
        self.looking.discard(sequence)
        insort(model.waiting, sequence, key=_order)
        if not model.running:  # time in which it had nothing to do gives no credit
            model.served_s = max(model.served_s, self.now_s)

    def remove(self, sequence: Sequence) -> None:
        """Forgets a sequence and takes its blocks."""
        model = self.models[sequence.model_id]
        self.looking.discard(sequence)
        if sequence.is_running:
            self._stop(model, sequence, goes_on=False)
        elif sequence in model.waiting:
            model.waiting.remove(sequence)

    def is_behind_looking(self, sequence: Sequence) -> bool:
        """Whether an earlier one is looked for on disk."""
        return bool(self.looking) and any(other.order < sequence.order for other in self.looking)

    def start(self, model: Model, sequence: Sequence) -> None:
        """It runs from now on."""
        model.waiting.remove(sequence)
        insort(model.running, sequence, key=_order)
        self.contention.started(model, sequence)
        sequence.is_running = sequence.was_admitted = True
        sequence.record.admitted(sequence.num_computed)

    def give_up(self, model: Model, sequence: Sequence, num_tokens: int) -> None:
        """It can never have memory for so many tokens."""
        table = sequence.table
        reason = f"the request {model.kv.describe_need(table.held_bytes + table.missing_bytes(num_tokens))}"
        self.remove(sequence)
        self.infeasible.append(Infeasible(sequence, reason))

    def fail(self, model: Model, sequence: Sequence, error: Exception) -> None:
        """Nothing that it has computed is to be found by others."""
        reason = unforeseen(sequence.id, error)
        sequence.cursor = None
        if not sequence.is_running:
            self.release(model, sequence, goes_on=False)
        self.remove(sequence)
        self.infeasible.append(Infeasible(sequence, reason))

    def preempt(self, model: Model, sequence: Sequence) -> None:
        """It waits at its old place."""
        self._stop(model, sequence, goes_on=True)
        sequence.num_known, sequence.num_looks = sequence.num_computed, 0
        sequence.start_over()
        self.add(sequence)
        self.preempted.add(sequence)
        sequence.record.preempted()

    def _stop(self, model: Model, sequence: Sequence, *, goes_on: bool) -> None:
        model.running.remove(sequence)
        sequence.is_running = False
        self.contention.stopped(model)
        self.release(model, sequence, goes_on=goes_on)

    @staticmethod
    def release(model: Model, sequence: Sequence, *, goes_on: bool) -> None:
        """Releases its blocks, whatever has gone wrong with it."""
        try:
            model.policy.release(sequence, goes_on=goes_on)
        except Exception:
            log.exception("what request %s computed cannot be kept", sequence.id)
            model.policy.abandon(sequence)
        if sequence.draft is not None:
            sequence.draft.release()
