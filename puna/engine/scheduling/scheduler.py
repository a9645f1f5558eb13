"""Which sequences of which model take part in the next step."""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Hashable
from enum import Enum, auto
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from puna.engine.caching.cache_policy import CachePolicy
from puna.engine.faults import unforeseen
from puna.engine.scheduling.contention import Contention, Pins
from puna.engine.scheduling.lane import Lane, fits, is_sure, missing_blocks, next_chunk
from puna.engine.scheduling.sequence import Sequence
from puna.engine.scheduling.step_costs import StepCosts
from puna.engine.settings import EngineSettings
from puna.engine.steps.batch import Slice
from puna.kv import BLOCK_TOKENS, BlockPool
from puna.kv.blocks import blocks_for

_order = attrgetter("order")


log = logging.getLogger(__name__)


class Hopeless(NamedTuple):
    """A sequence that needs more memory than there is for it, or with which something is wrong."""

    sequence: Sequence
    reason: str


class _Verdict(Enum):
    """On a sequence that waits."""

    OUT = auto()
    """It runs now, or is given up."""
    WAITS = auto()
    SHORT = auto()
    """It waits because there is no room for it."""


class Step(NamedTuple):
    """One batch of one model."""

    model_id: str
    slices: list[Slice]

    @property
    def num_tokens(self) -> int:
        return sum(s.num_computed for s in self.slices)


class Scheduler:
    """One order over all sequences of all models; who is earlier in it is served first.

    A sequence runs once there is room for all its tokens. One that then cannot grow takes the blocks of the
    last one in order, of any model, which waits at its old place. So the first sequence always gets on, and
    since newcomers come last, with it everybody. Models with work share the device's time by their weights.

    How a sequence comes by memory that others hold: Contention.
    """

    def __init__(self, settings: EngineSettings, pins: Pins) -> None:
        self._settings = settings
        self._lanes: dict[str, Lane] = {}
        self._contention = Contention(self._lanes, pins)
        self._waiting: list[Sequence] = []  # in order, of all models
        self._preempted: set[Sequence] = set()  # since the last step began
        self._hopeless: list[Hopeless] = []
        self._now_s = 0.0  # virtual time of the model that ran last

    @property
    def has_work(self) -> bool:
        sequences = chain(self._waiting, *(lane.running for lane in self._lanes.values()))
        return any(not sequence.is_paused for sequence in sequences)

    def lane(self, model_id: str) -> Lane:
        return self._lanes[model_id]

    def num_waiting(self, model_id: str) -> int:
        return sum(sequence.model_id == model_id for sequence in self._waiting)

    def add_model(
        self, model_id: str, pool: BlockPool, policy: CachePolicy, costs: StepCosts, weight: float
    ) -> None:
        self._lanes[model_id] = Lane(model_id, pool, policy, costs, weight)

    def remove_model(self, model_id: str) -> None:
        """Its sequences were removed before."""
        assert not self._lanes[model_id].running, "sequences run on a model that goes"
        del self._lanes[model_id]

    def add(self, sequence: Sequence) -> None:
        insort(self._waiting, sequence, key=_order)
        lane = self._lanes[sequence.model_id]
        if not lane.running:  # time in which it had nothing to do gives no credit
            lane.served_s = max(lane.served_s, self._now_s)

    def remove(self, sequence: Sequence) -> None:
        """Forgets a sequence and takes its blocks."""
        if sequence.is_running:
            self._stop(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)

    def next_step(self) -> Step | None:
        """None if there is nothing to do."""
        self._admit()
        for lane in sorted(self._lanes.values(), key=attrgetter("served_s")):
            if slices := self._slices(lane):
                self._now_s = lane.served_s
                return Step(lane.model_id, slices)
        return None

    def account(self, step: Step, guessing_s: float, seconds: float) -> None:
        """How long the guesses for a step took, and the step."""
        lane = self._lanes[step.model_id]
        lane.served_s += (guessing_s + seconds) / lane.weight
        lane.costs.observe(step.num_tokens, seconds)
        if all(s.num_tokens == 1 for s in step.slices):
            lane.pace.observe(step.num_tokens, seconds)

    def refused(self) -> list[Sequence]:
        """For whom the queue is too long, latest first; nobody who has run. The caller removes them."""
        limit = self._settings.max_queue
        excess = 0 if limit is None else len(self._waiting) - limit
        if excess <= 0:
            return []
        return [sequence for sequence in reversed(self._waiting) if not sequence.was_admitted][:excess]

    def take_hopeless(self) -> list[Hopeless]:
        """Who was given up by next_step(); the scheduler knows them no more."""
        hopeless, self._hopeless = self._hopeless, []
        return hopeless

    def give_way(self) -> bool:
        """Gives up something that no running sequence needs to get on; False: there is nothing."""
        return self._contention.give_way()

    def _admit(self) -> None:
        full: set[str] = set()  # models of which nobody can start
        is_short = False
        self._preempted.clear()
        while len(full) < len(self._lanes):
            sequence = next((s for s in self._waiting if s.model_id not in full), None)
            if sequence is None:
                break
            try:
                verdict = self._consider(sequence, is_short)
            except Exception as error:  # is its own
                self._fail(sequence, error)
                continue
            if verdict is not _Verdict.OUT:
                full.add(sequence.model_id)
                is_short |= verdict is _Verdict.SHORT

    def _consider(self, sequence: Sequence, is_short: bool) -> _Verdict:
        """is_short: somebody before it found no room."""
        lane = self._lanes[sequence.model_id]
        num_tokens = min(sequence.num_tokens, sequence.context_length)
        if sequence in self._preempted:  # or who is sure, and who comes first, might take turns for ever
            return _Verdict.WAITS
        if self._contention.is_hopeless(lane, sequence, num_tokens):
            self._give_up(lane, sequence, num_tokens)
            return _Verdict.OUT
        if not self._has_place(lane, sequence) or (is_short and not is_sure(lane, sequence)):
            return _Verdict.WAITS
        # Those behind one that finds no room wait, too: else a long prompt might wait forever for short ones.
        # Except for those who take only what nobody else can have.
        return _Verdict.OUT if self._start(lane, sequence) else _Verdict.SHORT

    def _has_place(self, lane: Lane, sequence: Sequence) -> bool:
        limit = self._settings.num_places
        return limit is None or len(lane.running) < limit or lane.running[-1].order > sequence.order

    def _start(self, lane: Lane, sequence: Sequence) -> bool:
        """Puts it among the running, in place of later ones if need be; False: there is no room."""
        sure = is_sure(lane, sequence)
        if lane.pool.must_shrink and not sure and any(other.running for other in self._lanes.values()):
            return False
        if len(lane.running) == self._settings.num_places:
            self._preempt(lane.running[-1])
        if not lane.policy.admit(sequence):
            return False
        while not self._contention.has_room(lane, sequence):
            if self._contention.give_way_to(lane, sequence):
                continue
            victim = self._contention.victim(lane, sequence, is_sure=sure)
            if victim is None:
                lane.policy.release(sequence)
                sequence.start_over()
                return False
            self._preempt(victim)
        self._waiting.remove(sequence)
        insort(lane.running, sequence, key=_order)
        sequence.is_running = sequence.was_admitted = True
        sequence.record.admitted(sequence.num_computed)
        return True

    def _slices(self, lane: Lane) -> list[Slice]:
        slices = [s for stream in self._streams(lane) if (s := self._decode_slice(lane, stream))]
        slices += self._prefills(lane, len(slices))
        return [s for s in slices if s.sequence.is_running]  # the others were preempted for the later slices

    def _streams(self, lane: Lane) -> list[Sequence]:
        """Those that need one token, or as many of them as a step takes beside a prompt, if there is one."""
        streams = [s for s in lane.running if s.num_pending == 1 and not s.is_paused]
        limit = max(self._settings.max_batch - (len(streams) < len(lane.running)), 1)
        if len(streams) <= limit:
            return streams
        first = lane.turn % len(streams)
        lane.turn = first + limit
        return (streams[first:] + streams[:first])[:limit]

    def _prefills(self, lane: Lane, num_decodes: int) -> list[Slice]:
        prompts = [s for s in lane.running if s.num_pending > 1 and not s.is_paused]
        if not prompts:
            return []
        budget = self._prefill_budget(lane, num_decodes)
        claimed: set[Hashable] = set()
        slices: list[Slice] = []
        for sequence in prompts:
            if budget <= 0 or num_decodes + len(slices) == self._settings.max_batch:
                break
            if not sequence.is_running:
                continue
            if s := self._prefill_slice(lane, sequence, budget, claimed):
                slices.append(s)
                budget -= s.num_tokens
        return slices

    def _decode_slice(self, lane: Lane, sequence: Sequence) -> Slice | None:
        try:
            has_room = sequence.is_running and self._make_room(lane, sequence, 1)
        except Exception as error:  # is its own
            self._fail(sequence, error)
            return None
        return Slice(sequence, 1) if has_room else None

    def _prefill_slice(
        self, lane: Lane, sequence: Sequence, budget: int, claimed: set[Hashable]
    ) -> Slice | None:
        try:
            if not lane.policy.catch_up(sequence, claimed):
                return None
            lane.policy.reuse_part(sequence)
            num_tokens = next_chunk(sequence, budget)
            has_room = self._make_room(lane, sequence, num_tokens)
        except Exception as error:  # is its own
            self._fail(sequence, error)
            return None
        return Slice(sequence, num_tokens) if has_room else None

    def _prefill_budget(self, lane: Lane, num_decodes: int) -> int:
        """Prompt tokens that fit in a step beside the streams of all models, which wait for its end."""
        settings = self._settings
        streaming = [other for other in self._lanes.values() if other.num_streams]
        if not streaming:
            return settings.prefill_tokens
        stream_s = max(other.pace.estimate(other.num_streams) for other in streaming)
        # A step that few wait for, and many gain by, may be longer.
        num_prompts = sum(sequence.num_pending > 1 for sequence in lane.running)
        num_streams = sum(other.num_streams for other in streaming)
        slowdown = settings.max_slowdown * (1 + num_prompts / num_streams)
        allowed_s = max(slowdown * stream_s, settings.unnoticed_s)
        for num_tokens in range(settings.prefill_tokens, settings.min_prefill_tokens, -BLOCK_TOKENS):
            estimate_s = lane.costs.estimate(num_decodes + num_tokens)
            if estimate_s is not None and estimate_s <= allowed_s:
                return num_tokens
        return settings.min_prefill_tokens

    def _make_room(self, lane: Lane, sequence: Sequence, num_tokens: int) -> bool:
        """Grows the table for the next tokens, at the cost of later sequences; False: it no longer runs."""
        while not fits(lane, sequence, num_tokens):
            length = min(sequence.position + num_tokens, sequence.context_length)
            if self._contention.is_hopeless(lane, sequence, length):
                self._give_up(lane, sequence, length)
                return False
            if self._contention.give_way():
                continue
            sure = lane.pool.is_sure_of(missing_blocks(sequence, num_tokens))
            victim = self._contention.victim(lane, sequence, is_sure=sure)
            assert victim is not None, "a running sequence could at least stop itself"
            is_alone = victim is sequence and lane.pool.is_all_held_by(sequence.table.num_blocks)
            if is_alone and not lane.pool.is_too_coarse:  # or there is more for it in a finer one
                self._give_up(lane, sequence, length)
                return False
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _give_up(self, lane: Lane, sequence: Sequence, num_tokens: int) -> None:
        reason = f"the request {lane.pool.describe_need(blocks_for(num_tokens))}"
        self.remove(sequence)
        self._hopeless.append(Hopeless(sequence, reason))

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        """Nothing that it has computed is to be found by others."""
        reason = unforeseen(sequence.id, error)
        sequence.cursor = None
        if not sequence.is_running:
            self._release(sequence)
        self.remove(sequence)
        self._hopeless.append(Hopeless(sequence, reason))

    def _preempt(self, sequence: Sequence) -> None:
        self._stop(sequence)
        sequence.start_over()
        self.add(sequence)
        self._preempted.add(sequence)
        sequence.record.preempted()

    def _stop(self, sequence: Sequence) -> None:
        self._lanes[sequence.model_id].running.remove(sequence)
        sequence.is_running = False
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        """Its blocks go, whatever is wrong with it."""
        policy = self._lanes[sequence.model_id].policy
        try:
            policy.release(sequence)
        except Exception:
            log.exception("what request %s computed cannot be kept", sequence.id)
            policy.abandon(sequence)
        if sequence.draft is not None:
            sequence.draft.release()
