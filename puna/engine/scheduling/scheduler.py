"""Which sequences of which model take part in the next step."""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Callable, Hashable, Mapping
from enum import Enum, auto
from operator import attrgetter
from typing import NamedTuple

from puna.engine.faults import unforeseen
from puna.engine.memory.ladder import Ladder
from puna.engine.model import Model
from puna.engine.offload.model_offload import ModelOffload
from puna.engine.offload.prefix_restores import MIN_BLOCKS
from puna.engine.scheduling.contention import Contention, half_chunk, needed_bytes
from puna.engine.scheduling.prefills import next_chunk, passing_share, prefill_budget, shorter_prompts
from puna.engine.sequences.batch import Slice
from puna.engine.sequences.sequence import Sequence
from puna.engine.settings import EngineSettings
from puna.kv import BLOCK_TOKENS

_order = attrgetter("order")


log = logging.getLogger(__name__)


class Infeasible(NamedTuple):
    """A sequence that needs more memory than there can be for it, or with which something is wrong."""

    sequence: Sequence
    reason: str


_MAX_LOOKS = 3
"""For what is on disk, of a sequence that finds room. Others may have taken that when it is found: in the end
it is computed, lest it wait for ever."""


class _Verdict(Enum):
    """On a sequence that waits."""

    OUT = auto()
    """It runs now, or is given up."""
    WAITS = auto()
    SHORT = auto()
    """It waits because there is no room for it."""


class Step(NamedTuple):
    """One batch of one model."""

    model: Model
    slices: list[Slice]

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
        self._look_on_disk, self._is_reading = look_again, is_reading
        self._models = models
        self._contention = Contention(models, ladder)
        self._preempted: set[Sequence] = set()  # since the last step began
        self._looking: set[Sequence] = set()  # again on disk
        self._infeasible: list[Infeasible] = []
        self._now_s = 0.0  # virtual time of the model that ran last

    @property
    def has_work(self) -> bool:
        return any(
            not sequence.is_paused and (sequence.is_running or not self._is_behind_looking(sequence))
            for model in self._models.values()
            for sequence in (*model.running, *model.waiting)
        )

    def add(self, sequence: Sequence) -> None:
        model = self._models[sequence.model_id]
        self._looking.discard(sequence)
        insort(model.waiting, sequence, key=_order)
        if not model.running:  # time in which it had nothing to do gives no credit
            model.served_s = max(model.served_s, self._now_s)

    def remove(self, sequence: Sequence) -> None:
        """Forgets a sequence and takes its blocks."""
        model = self._models[sequence.model_id]
        self._looking.discard(sequence)
        if sequence.is_running:
            self._stop(model, sequence, goes_on=False)
        elif sequence in model.waiting:
            model.waiting.remove(sequence)

    def undo(self, step: Step) -> None:
        """A step was ended in its midst: whose state was being written starts over."""
        for s in step.slices:
            sequence = s.sequence
            if sequence.is_running and not sequence.table.can_resume(sequence.position):
                self._preempt(self._models[sequence.model_id], sequence)

    def next_step(self) -> Step | None:
        """None if there is nothing to do."""
        self._contention.begin()
        self._admit()
        for model in sorted(self._models.values(), key=attrgetter("served_s")):
            if model.running and (slices := self._slices(model)):
                self._now_s = model.served_s
                return Step(model, slices)
        return None

    def account(self, model: Model, num_tokens: tuple[int, int], drafting_s: float, seconds: float) -> None:
        """How long the drafts for a step took, and the step. num_tokens: see Step.count_tokens()."""
        model.served_s += (drafting_s + seconds) / model.share
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
        infeasible, self._infeasible = self._infeasible, []
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
        self._preempt(self._models[last.model_id], last)
        return True

    def _admit(self) -> None:
        queues = [model for model in self._models.values() if model.waiting]
        is_short = False
        self._preempted.clear()
        while queues:
            model = min(queues, key=lambda model: model.waiting[0].order)
            sequence = model.waiting[0]
            try:
                verdict = self._consider(model, sequence, is_short)
            except Exception as error:  # is its own
                self._fail(model, sequence, error)
                verdict = _Verdict.OUT
            is_short |= verdict is _Verdict.SHORT
            if verdict is not _Verdict.OUT or not model.waiting:
                queues.remove(model)

    def _consider(self, model: Model, sequence: Sequence, is_short: bool) -> _Verdict:
        """is_short: somebody before it found no room."""
        num_tokens = min(sequence.num_tokens, sequence.context_length)
        if sequence in self._preempted:  # or one with a guarantee and one that comes first might take turns
            return _Verdict.WAITS
        if self._contention.is_infeasible(model, sequence, num_tokens):
            self._give_up(model, sequence, num_tokens)
            return _Verdict.OUT
        if not self._has_place(model, sequence):
            return _Verdict.WAITS
        # Those behind one that finds no room wait, too: else a long prompt might wait forever for short ones;
        # or they would take each other what they read from disk. Except for those who take only what nobody
        # else can have.
        is_short |= self._is_behind_looking(sequence)
        if is_short and not self._contention.is_guaranteed(model, sequence):
            return _Verdict.WAITS
        is_worth_trying = self._contention.may_have_room(model, sequence)
        return _Verdict.OUT if is_worth_trying and self._start(model, sequence) else _Verdict.SHORT

    def _is_behind_looking(self, sequence: Sequence) -> bool:
        return any(other.order < sequence.order for other in self._looking)

    def _has_place(self, model: Model, sequence: Sequence) -> bool:
        limit = self._settings.num_places
        return limit is None or len(model.running) < limit or model.running[-1].order > sequence.order

    def _start(self, model: Model, sequence: Sequence) -> bool:
        """Puts it among the running, in place of later ones if need be; False: there is no room."""
        is_guaranteed = self._contention.is_guaranteed(model, sequence)
        is_alone = not any(other.running for other in self._models.values())
        if model.kv.must_shrink and not is_guaranteed and not is_alone:
            return False
        if len(model.running) == self._settings.num_places:
            self._preempt(model, model.running[-1])
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
            self._preempt(self._models[victim.model_id], victim)
        lost = sequence.num_known - sequence.num_computed
        if lost >= MIN_BLOCKS * BLOCK_TOKENS and sequence.num_looks < _MAX_LOOKS:
            return self._look_again(model, sequence)
        model.waiting.remove(sequence)
        insort(model.running, sequence, key=_order)
        self._contention.started(model, sequence)
        sequence.is_running = sequence.was_admitted = True
        sequence.record.admitted(sequence.num_computed)
        return True

    def _look_again(self, model: Model, sequence: Sequence) -> bool:
        """On disk, for what was evicted before it started; there is room now, unless others are being read.
        False: it waits.
        """
        self._release(model, sequence, goes_on=True)
        sequence.start_over()
        if self._is_reading():
            return False
        sequence.num_looks += 1
        if not self._look_on_disk(model.offload, sequence):
            return self._start(model, sequence)
        model.waiting.remove(sequence)
        self._looking.add(sequence)
        return True

    def _slices(self, model: Model) -> list[Slice]:
        slices = [s for stream in self._streams(model) if (s := self._decode_slice(model, stream))]
        slices += self._prefills(model, len(slices))
        return [s for s in slices if s.sequence.is_running]  # the others were preempted for the later slices

    def _streams(self, model: Model) -> list[Sequence]:
        """Those that need one token, or as many of them as a step takes beside a prompt, if there is one."""
        streams = [s for s in model.running if s.num_pending == 1 and not s.is_paused]
        limit = max(self._settings.max_batch - (len(streams) < len(model.running)), 1)
        if len(streams) <= limit:
            return streams
        first = model.turn % len(streams)
        model.turn = first + limit
        return (streams[first:] + streams[:first])[:limit]

    def _prefills(self, model: Model, num_decodes: int) -> list[Slice]:
        """The first prompt in order has at least half of what a step takes, shorter ones the other half."""
        prompts = [s for s in model.running if s.num_pending > 1 and not s.is_paused]
        if not prompts:
            return []
        budget = prefill_budget(model, self._models.values(), self._settings, num_decodes)
        most = self._settings.max_batch - num_decodes
        first, shorter = prompts[0], shorter_prompts(prompts)
        share = passing_share(model, shorter, budget, most)
        others = [*shorter, *(s for s in prompts[1:] if s not in shorter)]
        claimed: set[Hashable] = set()
        slices: list[Slice] = []
        for sequence in others if share == budget else [first, *others]:
            if budget <= 0 or len(slices) == most:
                break
            own = budget - share if sequence is first else budget
            if s := self._prefill_slice(model, sequence, own, claimed):
                slices.append(s)
                budget -= s.num_tokens
        if share and budget > 0:
            self._use_rest(model, first, budget, most, claimed, slices)
        return slices

    def _use_rest(
        self,
        model: Model,
        first: Sequence,
        budget: int,
        most: int,
        claimed: set[Hashable],
        slices: list[Slice],
    ) -> None:
        """Gives the first prompt the tokens that shorter ones, waiting for a shared part, have left."""
        if slices and slices[0].sequence is first:
            if s := self._slice(model, first, next_chunk(first, slices[0].num_tokens + budget)):
                slices[0] = s
        elif len(slices) < most and (s := self._prefill_slice(model, first, budget, claimed)):
            slices.append(s)

    def _decode_slice(self, model: Model, sequence: Sequence) -> Slice | None:
        if not sequence.is_running:
            return None
        return Slice(sequence, 1) if sequence.fits_block else self._slice(model, sequence, 1)

    def _prefill_slice(
        self, model: Model, sequence: Sequence, budget: int, claimed: set[Hashable]
    ) -> Slice | None:
        try:
            if not sequence.is_running or not model.policy.catch_up(sequence, claimed):
                return None
            model.policy.reuse_part(sequence)
        except Exception as error:  # is its own
            self._fail(model, sequence, error)
            return None
        return self._slice(model, sequence, next_chunk(sequence, budget))

    def _slice(self, model: Model, sequence: Sequence, num_tokens: int) -> Slice | None:
        """None: there is no room for it, and it does not run any more."""
        try:
            if model.kv.has_windows and num_tokens > 1:
                num_tokens = min(num_tokens, self._contention.most_at_once(model, sequence))
            num_tokens = self._make_room(model, sequence, num_tokens)
        except Exception as error:  # is its own
            self._fail(model, sequence, error)
            return None
        return Slice(sequence, num_tokens) if num_tokens else None

    def _make_room(self, model: Model, sequence: Sequence, num_tokens: int) -> int:
        """Grows the table for the next tokens, at the cost of later sequences, or for fewer of them where
        layers have windows. Returns how many; 0: it no longer runs.
        """
        while not _fits(model, sequence, num_tokens):
            length = min(sequence.position + num_tokens, sequence.context_length)
            if self._contention.is_infeasible(model, sequence, length):
                self._give_up(model, sequence, length)
                return 0
            if self._contention.give_way():
                continue
            if model.kv.has_windows and (fewer := half_chunk(sequence, num_tokens)) < num_tokens:
                num_tokens = fewer
                continue
            missing = sequence.table.missing_bytes(sequence.position + num_tokens)
            is_guaranteed = model.kv.is_guaranteed(missing)
            victim = self._contention.victim(model, sequence, is_guaranteed=is_guaranteed)
            assert victim is not None, "a running sequence could at least stop itself"
            is_alone = victim is sequence and model.kv.is_all_held_by(sequence.table)
            has_all = is_alone and not model.kv.is_too_coarse  # or there is more for it in a finer one
            if has_all and not self._contention.may_get_more:
                self._give_up(model, sequence, length)
                return 0
            self._preempt(self._models[victim.model_id], victim)
            if has_all:
                missing = needed_bytes(sequence) - model.kv.available_bytes
                self._contention.found_no_room(model, sequence, missing)
            if victim is sequence:
                return 0
        return num_tokens

    def _give_up(self, model: Model, sequence: Sequence, num_tokens: int) -> None:
        table = sequence.table
        reason = f"the request {model.kv.describe_need(table.held_bytes + table.missing_bytes(num_tokens))}"
        self.remove(sequence)
        self._infeasible.append(Infeasible(sequence, reason))

    def _fail(self, model: Model, sequence: Sequence, error: Exception) -> None:
        """Nothing that it has computed is to be found by others."""
        reason = unforeseen(sequence.id, error)
        sequence.cursor = None
        if not sequence.is_running:
            self._release(model, sequence, goes_on=False)
        self.remove(sequence)
        self._infeasible.append(Infeasible(sequence, reason))

    def _preempt(self, model: Model, sequence: Sequence) -> None:
        self._stop(model, sequence, goes_on=True)
        sequence.num_known, sequence.num_looks = sequence.num_computed, 0
        sequence.start_over()
        self.add(sequence)
        self._preempted.add(sequence)
        sequence.record.preempted()

    def _stop(self, model: Model, sequence: Sequence, *, goes_on: bool) -> None:
        model.running.remove(sequence)
        sequence.is_running = False
        self._contention.stopped(model)
        self._release(model, sequence, goes_on=goes_on)

    @staticmethod
    def _release(model: Model, sequence: Sequence, *, goes_on: bool) -> None:
        """Releases its blocks, whatever has gone wrong with it."""
        try:
            model.policy.release(sequence, goes_on=goes_on)
        except Exception:
            log.exception("what request %s computed cannot be kept", sequence.id)
            model.policy.abandon(sequence)
        if sequence.draft is not None:
            sequence.draft.release()


def _fits(model: Model, sequence: Sequence, num_tokens: int) -> bool:
    """Whether its table has room for the next tokens now."""
    if sequence.position == sequence.context_length:
        if not model.policy.shift(sequence):
            return False
        sequence.num_shifts += 1
        sequence.record.shifted(sequence.num_discard)
    return sequence.table.grow(sequence.position + num_tokens)


def _unguaranteed_bytes(model: Model) -> int:
    """Memory in use beyond what is guaranteed to the model."""
    return max(model.kv.used_bytes - model.guaranteed_bytes, 0)
