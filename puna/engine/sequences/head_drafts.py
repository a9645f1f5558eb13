"""What a model's prediction head knows of one sequence, and how often its drafts are right."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from puna.backends.base import DeviceHeadState
from puna.engine.sequences.draft_state import Drafter

_PRIOR_RATE = 0.7
_PRIOR_WEIGHT = 4  # observations
_DEPTHS = 3  # with rates of their own: later drafts build on the head's own earlier ones


class DepthRates:
    """How often drafts are right if those before them were: of the first, the second, and later ones."""

    def __init__(self, most_weight: int, rates: list[float] | None = None) -> None:
        """most_weight: of what was seen before, in observations. rates: before anything is seen."""
        self.values = [_PRIOR_RATE] * _DEPTHS if rates is None else list(rates)
        self._weights = [_PRIOR_WEIGHT] * _DEPTHS
        self._most_weight = most_weight

    def observe(self, depth: int, *, was_right: bool) -> None:
        """depth: drafts before it."""
        i = min(depth, _DEPTHS - 1)
        self._weights[i] = min(self._weights[i] + 1, self._most_weight)
        self.values[i] += (was_right - self.values[i]) / self._weights[i]

    def chances(self, limit: int) -> list[float]:
        """Entry i: the probability that the first i + 1 drafts are all right."""
        chances, chance = [], 1.0
        for depth in range(limit):
            chance *= self.values[min(depth, _DEPTHS - 1)]
            chances.append(chance)
        return chances


class Head(Drafter, Protocol):
    """A prediction head, as its sequences see it."""

    @property
    def is_on(self) -> bool: ...

    def judged(self, depth: int, *, was_right: bool) -> None:
        """A draft of some sequence was, behind so many others."""

    def ration(self, planned: int) -> int:
        """See DraftSource."""


class HeadDrafts:
    """A DraftSource. The head's KV is in the sequence's own table."""

    def __init__(self, head: Head, state: DeviceHeadState, rates: DepthRates) -> None:
        """rates: of this sequence alone."""
        self.drafter = head
        self.state = state
        self._rates = rates
        self._begin = 0  # of the latest drafts, in the sequence
        self._drafts: list[int] = []

    @property
    def is_on(self) -> bool:
        """Whether the head is in use at all."""
        return self.drafter.is_on

    @property
    def rate(self) -> float:
        return self._rates.values[0]

    def chances(self, limit: int) -> list[float]:
        return self._rates.chances(limit) if self.is_on else []

    def drafted(self, begin: int, drafts: list[int]) -> None:
        """begin: tokens of the sequence before them."""
        self._begin, self._drafts = begin, drafts

    def judge(self, tokens: NDArray[np.int32]) -> None:
        came = tokens[self._begin : self._begin + len(self._drafts)].tolist()
        for depth, (draft, token) in enumerate(zip(self._drafts, came, strict=False)):
            was_right = draft == token
            self._rates.observe(depth, was_right=was_right)
            self.drafter.judged(depth, was_right=was_right)
            if not was_right:
                break
        self._drafts = []

    def ration(self, planned: int) -> int:
        return self.drafter.ration(planned)
