"""The state of a draft model for one sequence: its KV, and how often its drafts are right."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from puna.kv import SequenceTable

_PRIOR_RATE = 0.7
_PRIOR_WEIGHT = 4  # observations
_MOST_WEIGHT = 16  # of what was seen before, in observations
_SHORTEST_WAIT = 16  # steps without drafts, where they do not pay
_LONGEST_WAIT = 1024
_WAIT_FOR_MEMORY = 256  # steps: everything has to be computed again afterwards


class Drafter(Protocol):
    """What drafts for sequences: a draft model, or a model's own prediction head."""

    def round_s(self, num_sequences: int) -> float:
        """Seconds for one more draft of each; 0 while that is not known."""

    def draft(self, wanted: Items[tuple[Any, int]], step_s: float) -> list[list[int]]:
        """So many drafts for each of the engine's sequences, in steps of about step_s seconds."""


class DraftSource(Protocol):
    """What a drafter knows of one sequence."""

    @property
    def drafter(self) -> Drafter: ...

    @property
    def rate(self) -> float:
        """How often the first draft is right."""

    def judge(self, tokens: NDArray[np.int32]) -> None:
        """Compares the latest drafts with what came. tokens: [n], the whole sequence."""

    def chances(self, limit: int) -> list[float]:
        """Entry i: the probability that the first i + 1 drafts are all right."""

    def ration(self, planned: int) -> int:
        """How many drafts to make: as planned, and where none would pay, one after ever longer waits, since
        that may have changed.
        """


class Ration:
    """Lets a draft be made after 16, 32, ... 1,024 steps in which none would have paid."""

    def __init__(self) -> None:
        self._wait = 0  # steps
        self._next_wait = _SHORTEST_WAIT

    def of(self, planned: int) -> int:
        """See DraftSource.ration()."""
        if planned:
            self._wait, self._next_wait = 0, _SHORTEST_WAIT
            return planned
        if self._wait:
            self._wait -= 1
            return 0
        self._wait = self._next_wait
        self._next_wait = min(2 * self._next_wait, _LONGEST_WAIT)
        return 1


class DraftState:
    """| KV in the table  | of drafts          |
    0                  num_computed

    Drafts that turn out right are tokens whose KV is there already; the others' is written over.
    """

    def __init__(self, drafter: Drafter, table: SequenceTable) -> None:
        """table: of the draft model's pool."""
        self.drafter = drafter
        self.table = table
        self.num_computed = 0
        """Tokens of the sequence whose KV is in the table."""
        self.rate = _PRIOR_RATE
        """How often a draft is right, if those before it were."""
        self._weight = _PRIOR_WEIGHT
        self._drafts: list[int] = []
        self._barred = 0  # steps
        self._ration = Ration()

    def chances(self, limit: int) -> list[float]:
        return [self.rate**count for count in range(1, limit + 1)]

    def drafted(self, num_tokens: int, drafts: list[int]) -> None:
        """The sequence's first `num_tokens` tokens are computed, and all drafts but the last."""
        self.num_computed = num_tokens
        self._drafts = drafts

    def judge(self, tokens: NDArray[np.int32]) -> None:
        came = tokens[self.num_computed : self.num_computed + len(self._drafts)].tolist()
        num_right = 0
        for draft, token in zip(self._drafts, came, strict=False):
            self._weight = min(self._weight + 1, _MOST_WEIGHT)
            self.rate += ((draft == token) - self.rate) / self._weight
            if draft != token:
                break
            num_right += 1
        self.num_computed += min(num_right, max(len(self._drafts) - 1, 0))
        self._drafts = []

    def ration(self, planned: int) -> int:
        if self._barred:
            self._barred -= 1
            return 0
        return self._ration.of(planned)

    def release(self) -> None:
        """Gives the blocks back."""
        self.table.release()
        self.num_computed = 0
        self._drafts = []

    def give_up(self) -> bool:
        """Gives the blocks back, and takes none for a while; False: there were none."""
        had_blocks = self.table.num_blocks > 0
        self.release()
        self._barred = _WAIT_FOR_MEMORY
        return had_blocks
