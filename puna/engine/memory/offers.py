"""What engines that share memory tell of it: what one lacks, and what another could give up."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import msgspec

from puna.kv.limits import NOTHING, Limits


class Level(IntEnum):
    """A kind of memory to give up, as in the table of puna/engine/memory/ladder.py: lower levels go first."""

    FREE = 0
    """Nobody has it."""
    SPARE = 1
    CACHED = 2
    DRAFTS = 3
    TRANSFERS = 4
    SESSIONS = 5
    SLOTS = 6
    IDLE_MODELS = 7
    SEQUENCES = 8
    """Running sequences that come after the asking one in order."""
    ENDING = 9
    """Nothing that can be given up: what running sequences hold that come first. It is free when they end."""


class Offer(msgspec.Struct, frozen=True):
    """What one level of an engine's ladder would give."""

    level: Level
    unused_s: float
    """For so many seconds nobody has used some of it; 0: not known."""
    gives: Limits

    @property
    def cost(self) -> tuple[Level, float]:
        """The smallest goes first."""
        return self.level, -self.unused_s


class Short(msgspec.Struct, frozen=True, tag=True):
    """An event: an engine's first request in order waits for memory that its limits do not allow."""

    lack: Limits
    """By how much they are too low."""
    order_s: float
    """When the request came, by the system's monotonic clock, and earlier for a higher priority."""


def offers_of(gains: Iterable[tuple[Level, Limits, float]], slack: Limits, asked: Limits) -> list[Offer]:
    """What each level adds to what could be given of `asked`.

    gains: by level, what giving it up would make free, and its unused_s. slack: what is free, or is lacking.
    """
    offers = []
    given, reached = NOTHING, slack
    for level, gain, unused_s in gains:
        reached += gain
        offered = reached.at_least(given).at_most(asked)
        if offered != given:
            offers.append(Offer(level, unused_s, offered - given))
            given = offered
    return offers
