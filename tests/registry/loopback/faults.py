"""What can be wrong with a response that carries a blob."""

from __future__ import annotations

import random
from dataclasses import dataclass

FAULTS = (
    "refuse",  # status 500 or 429
    "drop",  # the connection ends in the middle
    "stall",  # nothing comes any more
    "short",  # fewer bytes than asked for, and said so
    "long length",  # a length that never comes
    "other total",  # of a blob of another size
    "other range",  # other bytes than asked for
    "no range",  # all of it, whatever was asked for
    "long",  # more bytes than asked for
    "corrupt",  # other bytes than there are
    "gone",  # the address where it was redirected to is no longer
    "slow",  # a little at a time
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One of FAULTS, after a share of the bytes."""

    kind: str
    after: float = 0.5


class RandomFaults:
    """A share of all responses has one of `kinds`."""

    def __init__(self, seed: str, share: float, kinds: tuple[str, ...] = FAULTS) -> None:
        self._random = random.Random(seed)
        self._share = share
        self._kinds = kinds

    def __call__(self) -> Fault | None:
        if self._random.random() >= self._share:
            return None
        return Fault(self._random.choice(self._kinds), self._random.random())
