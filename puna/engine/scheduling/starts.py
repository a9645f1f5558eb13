"""Which of the waiting sequences start."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from puna.engine.model import Model
from puna.engine.offload.model_offload import ModelOffload
from puna.engine.offload.prefix_restores import MIN_BLOCKS
from puna.engine.scheduling.contention import Contention
from puna.engine.scheduling.lifecycle import Lifecycle
from puna.engine.sequences.sequence import Sequence
from puna.kv import BLOCK_TOKENS

_MAX_LOOKS = 16
"""For what is on disk, of a sequence that finds room. Others may have taken that when it is found: in the end
it is computed, lest it wait for ever."""


class _Verdict(Enum):
    """On a sequence that waits."""

    OUT = auto()
    """It runs now, or is given up."""
    WAITS = auto()
    SHORT = auto()
    """It waits because there is no room for it."""


class Starts:
    """A sequence starts once there is room for all its tokens, in its order."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        contention: Contention,
        num_places: int | None,
        look_again: Callable[[ModelOffload, Sequence], bool],
        is_reading: Callable[[], bool],
    ) -> None:
        """num_places: of each model, for running sequences; None: memory is the bound. look_again,
        is_reading: see Scheduler.
        """
        self._lifecycle = lifecycle
        self._contention = contention
        self._models = lifecycle.models
        self._num_places = num_places
        self._look_on_disk, self._is_reading = look_again, is_reading

    def admit(self) -> None:
        """Before a step: whoever can starts."""
        queues = [model for model in self._models.values() if model.waiting]
        is_short = False
        self._lifecycle.preempted.clear()
        while queues:
            model = min(queues, key=lambda model: model.waiting[0].order)
            sequence = model.waiting[0]
            try:
                verdict = self._consider(model, sequence, is_short)
            except Exception as error:  # is its own
                self._lifecycle.fail(model, sequence, error)
                verdict = _Verdict.OUT
            is_short |= verdict is _Verdict.SHORT
            if verdict is not _Verdict.OUT or not model.waiting:
                queues.remove(model)

    def _consider(self, model: Model, sequence: Sequence, is_short: bool) -> _Verdict:
        """is_short: somebody before it found no room."""
        num_tokens = min(sequence.num_tokens, sequence.context_length)
        if (
            sequence in self._lifecycle.preempted
        ):  # or one with a guarantee and one that comes first might take turns
            return _Verdict.WAITS
        if self._contention.is_infeasible(model, sequence, num_tokens):
            self._lifecycle.give_up(model, sequence, num_tokens)
            return _Verdict.OUT
        if not self._has_place(model, sequence):
            return _Verdict.WAITS
        # Those behind one that finds no room wait, too: else a long prompt might wait forever for short ones;
        # or they would take each other what they read from disk. Except for those who take only what nobody
        # else can have.
        is_short |= self._lifecycle.is_behind_looking(sequence)
        if is_short and not self._contention.is_guaranteed(model, sequence):
            return _Verdict.WAITS
        is_worth_trying = self._contention.may_have_room(model, sequence)
        return _Verdict.OUT if is_worth_trying and self._start(model, sequence) else _Verdict.SHORT

    def _has_place(self, model: Model, sequence: Sequence) -> bool:
        limit = self._num_places
        return limit is None or len(model.running) < limit or model.running[-1].order > sequence.order

    def _start(self, model: Model, sequence: Sequence) -> bool:
        """Puts it among the running, in place of later ones if need be; False: there is no room."""
        is_guaranteed = self._contention.is_guaranteed(model, sequence)
        if model.kv.must_shrink and not is_guaranteed and any(m.running for m in self._models.values()):
            return False
        if len(model.running) == self._num_places:
            self._lifecycle.preempt(model, model.running[-1])
        if not model.policy.admit(sequence):
            return False
        while not self._contention.has_room(model, sequence):
            if self._contention.give_way_to(model, sequence):
                continue
            victim = self._contention.victim(model, sequence, is_guaranteed=is_guaranteed)
            if victim is None:
                missing_bytes = self._contention.missing_bytes(model, sequence)
                model.policy.release(sequence, goes_on=True)
                self._contention.found_no_room(model, sequence, missing_bytes)
                sequence.start_over()
                return False
            self._lifecycle.preempt(self._models[victim.model_id], victim)
        lost = sequence.num_known - sequence.num_computed
        if lost >= MIN_BLOCKS * BLOCK_TOKENS and sequence.num_looks < _MAX_LOOKS:
            return self._look_again(model, sequence)
        self._lifecycle.start(model, sequence)
        return True

    def _look_again(self, model: Model, sequence: Sequence) -> bool:
        """On disk, for what was evicted before it started; there is room now, unless others are being read.
        False: it waits.
        """
        self._lifecycle.release(model, sequence, goes_on=True)
        sequence.start_over()
        if self._is_reading():
            return False
        sequence.num_looks += 1
        if not self._look_on_disk(model.offload, sequence):
            return self._start(model, sequence)
        model.waiting.remove(sequence)
        self._lifecycle.looking.add(sequence)
        return True
