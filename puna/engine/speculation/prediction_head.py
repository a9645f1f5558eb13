"""A model's own prediction head (MTP) as a drafter: used as long as it is measured to pay."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Items

from puna._native import NativeError, StepCosts, plan_drafts
from puna.backends.base import DeviceModel, DeviceOutOfMemory
from puna.engine.sequences.batch import batch_of, num_threads, part_of_head
from puna.engine.sequences.draft_state import Ration
from puna.engine.sequences.head_drafts import DepthRates, HeadDrafts
from puna.engine.sequences.sequence import Sequence
from puna.kv.model_kv import ModelKv

_MOST_WEIGHT = 64  # of what was seen before, in observations: of all sequences
_MOST_WEIGHT_OF_ONE = 16
_FEWEST_JUDGED, _JUDGED = 6, 16  # drafts, before the first look at whether the head pays, and between others
_FEWEST_SKIPPED, _MOST_SKIPPED = 8, 512  # sequences that go without, before it is tried again
_MOST_DEPTH = 4  # drafts, for the question whether any would pay


class PredictionHead:
    """While it is in use, each step leaves what the head needs of its tokens; that costs about as much as
    half a layer. So a head whose drafts would not even pay for the smallest steps there are is not used, but
    for a try with every so many new sequences.

    Its KV lies in the blocks of the model's own layers: found, shifted and kept with them. Where a prefix was
    computed without the head, what is there is old or zero: drafts are then worse, which is seen in how often
    they are right.
    """

    def __init__(self, device: DeviceModel, costs: StepCosts, clock: Callable[[], float]) -> None:
        """costs: of the model's steps."""
        self.kv: ModelKv | None = None
        """The model's; None while it sleeps."""
        self.is_on = device.info.predicts
        self._device = device
        self._step_costs = costs
        self._costs = StepCosts()
        """Of one draft of each sequence."""
        self._clock = clock
        self._rates = DepthRates(_MOST_WEIGHT)
        self._num_judged = 0
        self._ration = Ration()
        self._next_skip = _FEWEST_SKIPPED
        self._num_skipped = 0

    def new_drafts(self) -> HeadDrafts | None:
        """For a new sequence; None: it had better go without."""
        if not self._device.info.predicts:
            return None
        if not self.is_on:
            self._num_skipped += 1
            if self._num_skipped < self._next_skip:
                return None
            self._next_skip = min(2 * self._next_skip, _MOST_SKIPPED)
            self._try_again()
        rates = DepthRates(_MOST_WEIGHT_OF_ONE, self._rates.values)
        return HeadDrafts(self, self._device.new_head_state(), rates)

    def judged(self, depth: int, *, was_right: bool) -> None:
        self._rates.observe(depth, was_right=was_right)
        self._num_judged += 1
        if self._num_judged % _JUDGED == 0:
            self._look()

    def ration(self, planned: int) -> int:
        count = self._ration.of(planned)
        if count > planned and self._num_judged >= _FEWEST_JUDGED:
            self._look()
        return count if self.is_on else 0

    def round_s(self, num_sequences: int) -> float:
        """Where so many were not seen yet: it grows with their number as the model's steps do."""
        known = self._costs.estimate(num_sequences)
        fewest = self._costs.fewest_tokens
        if known is None or num_sequences <= fewest or self._costs.has_seen(num_sequences):
            return known or 0.0
        smallest = math.ceil(fewest)
        of_step, of_smallest = self._step_costs.estimate(num_sequences), self._step_costs.estimate(smallest)
        if not of_step or not of_smallest:
            return known
        return min(known, (self._costs.estimate(smallest) or 0.0) * of_step / of_smallest)

    def draft(self, wanted: Items[tuple[Sequence, int]], step_s: float) -> list[list[int]]:  # noqa: ARG002
        """None where blocks are short, or the head gives no numbers."""
        ready = [(s, count) for s, count in wanted if s.table.grow(s.position + 1 + count)]
        found = dict(zip([s.id for s, _ in ready], self._predict(ready), strict=True)) if ready else {}
        drafts = [found.get(s.id, []) for s, _ in wanted]
        for (s, _), of_sequence in zip(wanted, drafts, strict=True):
            assert s.head is not None, "a sequence without a prediction head"
            s.head.drafted(s.num_tokens, of_sequence)
        return drafts

    def _predict(self, ready: Items[tuple[Sequence, int]]) -> list[list[int]]:
        assert self.kv is not None, "drafts of a model that sleeps"
        start_s = self._clock()
        sequences = [s for s, _ in ready]
        counts = [count for _, count in ready]
        batch = batch_of([part_of_head(s) for s in sequences], num_threads(sequences))
        memory = self.kv.memories
        try:
            drafts = self._device.predict(batch, memory, counts)
        except (NativeError, DeviceOutOfMemory, MemoryError):
            return [[] for _ in ready]
        self._costs.observe(len(ready), (self._clock() - start_s) / max(counts))
        return drafts

    def _look(self) -> None:
        """Whether to go on."""
        self.is_on = self._pays()
        self._num_skipped = 0
        if self.is_on:
            self._next_skip = _FEWEST_SKIPPED

    def _pays(self) -> bool:
        """For as few sequences at once as steps were seen of."""
        fewest = self._step_costs.fewest_tokens
        if math.isinf(fewest):
            return True
        count = math.ceil(fewest)
        chances = [self._rates.chances(_MOST_DEPTH)] * count
        return any(plan_drafts(chances, count, count, self._step_costs, self.round_s(count)))

    def _try_again(self) -> None:
        self.is_on = True
        self._rates = DepthRates(_MOST_WEIGHT)
        self._num_judged = 0
        self._ration = Ration()
