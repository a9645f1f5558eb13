"""Which sequences of which model take part in the next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import NamedTuple

from puna.engine.memory.ladder import Ladder
from puna.engine.model import Model, SuspendedStep
from puna.engine.offload.model_offload import ModelOffload
from puna.engine.scheduling.contention import Contention, needed_bytes
from puna.engine.scheduling.lifecycle import Infeasible, Lifecycle
from puna.engine.scheduling.prefills import allowed_seconds
from puna.engine.scheduling.slices import Slices
from puna.engine.scheduling.starts import Starts
from puna.engine.sequences.batch import Slice
from puna.engine.sequences.sequence import Sequence
from puna.engine.settings import EngineSettings

_order = attrgetter("order")


class Step(NamedTuple):
    """One batch of one model."""

    model: Model
    slices: list[Slice]
    limit_s: float | None = None
    """After so long it is to be suspended: an encoder's texts are computed whole, and others do not wait for
    that. None: it runs to its end."""

    def count_tokens(self) -> tuple[int, int]:
        """In slices of several, which are prompts; and in the others, with the drafts behind them."""
        num_prompt = num_decoded = 0
        for s in self.slices:
            if s.num_tokens == 1:
                num_decoded += 1 + len(s.drafts)
            else:
                num_prompt += s.num_tokens
        return num_prompt, num_decoded


class Scheduler:
    """One order over all sequences of all models; the earlier one is served first.

    A sequence runs once there is room for all its tokens. One that then cannot grow takes the blocks of the
    last one in order, of any model, which waits at its old place. So the first sequence always gets on, and
    every sequence becomes the first, since newcomers come last. Models with work share the device's time by
    their shares.

    Contention decides which memory a sequence takes from others.
    """

    def __init__(
        self,
        settings: EngineSettings,
        models: Mapping[str, Model],
        ladder: Ladder,
        look_again: Callable[[ModelOffload, Sequence], bool],
        is_reading: Callable[[], bool],
    ) -> None:
        """models: by id, those asleep included. look_again: True: the sequence waits for what is on disk, and
        is added again then. is_reading: whether something is being read from disk.
        """
        self._settings = settings
        self._models = models
        self._contention = Contention(models, ladder)
        self._lifecycle = Lifecycle(models, self._contention)
        self._starts = Starts(self._lifecycle, self._contention, settings.num_places, look_again, is_reading)
        self._slices = Slices(settings, self._lifecycle, self._contention)

    @property
    def has_work(self) -> bool:
        return any(
            sequence.num_computable > 0
            and (sequence.is_running or not self._lifecycle.is_behind_looking(sequence))
            for model in self._models.values()
            for sequence in (*model.running, *model.waiting)
        )

    def add(self, sequence: Sequence) -> None:
        """It waits for its turn."""
        self._lifecycle.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forgets a sequence and takes its blocks."""
        self._lifecycle.remove(sequence)

    def undo(self, step: Step) -> None:
        """A step was ended in its midst: whose state was being written starts over."""
        step.model.suspended = None
        for s in step.slices:
            sequence = s.sequence
            if sequence.is_running and not sequence.table.can_resume(sequence.position):
                self._lifecycle.preempt(self._models[sequence.model_id], sequence)

    def next_step(self) -> Step | None:
        """None if there is nothing to do."""
        self._contention.begin()
        self._starts.admit()
        for model in sorted(self._models.values(), key=attrgetter("served_s")):
            if model.running and (slices := self._slices.of(model)):
                self._lifecycle.now_s = model.served_s
                return Step(model, slices, self._limit_s(model))
        return None

    def _limit_s(self, model: Model) -> float | None:
        if not model.device.info.is_encoder:
            return None
        allowed_s = allowed_seconds(model, self._models.values(), self._settings)
        return self._settings.text_step_s if allowed_s is None else allowed_s

    def suspend(self, step: Step, seconds: float) -> None:
        """It goes on when it is the model's turn again. seconds: that it took this time."""
        model = step.model
        model.served_s += seconds / model.share
        before_s = 0.0 if model.suspended is None else model.suspended.seconds
        model.suspended = SuspendedStep(step.slices, before_s + seconds)

    def account(self, model: Model, num_tokens: tuple[int, int], drafting_s: float, seconds: float) -> None:
        """How long the drafts for a step took, and the step. num_tokens: see Step.count_tokens()."""
        model.served_s += (drafting_s + seconds) / model.share
        if model.suspended is not None:
            seconds += model.suspended.seconds
            model.suspended = None
        model.costs.observe(sum(num_tokens), seconds)
        if num_tokens[0] == 0:
            model.pace.observe(num_tokens[1], seconds)

    def refused(self) -> list[Sequence]:
        """Sequences beyond the queue's limit, latest first; none that has run. The caller removes them."""
        limit = self._settings.max_queue
        excess = 0 if limit is None else sum(len(model.waiting) for model in self._models.values()) - limit
        if excess <= 0:
            return []
        new = (s for model in self._models.values() for s in model.waiting if not s.was_admitted)
        return sorted(new, key=_order, reverse=True)[:excess]

    def take_infeasible(self) -> list[Infeasible]:
        """Sequences that next_step() gave up; the scheduler has forgotten them."""
        infeasible, self._lifecycle.infeasible = self._lifecycle.infeasible, []
        return infeasible

    def shortages(self) -> list[tuple[Sequence, int]]:
        """Sequences that could not start for lack of memory, and how many bytes each lacked."""
        return [(short.sequence, short.missing_bytes) for short in self._contention.shortages()]

    def held_bytes(self, order_s: float) -> tuple[int, int, int]:
        """By running sequences that came later than that, beyond what is guaranteed; by the others; and what
        those are about to take besides.
        """
        later = earlier = needed = 0
        for model in self._models.values():
            if model.running:
                held = [(s.order[0] > order_s, s.table.held_bytes) for s in model.running]
                gained = min(sum(size for is_later, size in held if is_later), _unguaranteed_bytes(model))
                later += gained
                earlier += model.kv.used_bytes - gained
                needed += sum(needed_bytes(s) for s in model.running if s.order[0] <= order_s)
        return later, earlier, needed

    def preempt_last(self, order_s: float) -> bool:
        """Preempts the last sequence in order, if it came later than that; False: there is none."""
        gain = [model for model in self._models.values() if model.running and _unguaranteed_bytes(model)]
        last = max((model.running[-1] for model in gain), key=_order, default=None)
        if last is None or last.order[0] <= order_s:
            return False
        self._lifecycle.preempt(self._models[last.model_id], last)
        return True


def _unguaranteed_bytes(model: Model) -> int:
    """Memory in use beyond what is guaranteed to the model."""
    return max(model.kv.used_bytes - model.guaranteed_bytes, 0)
