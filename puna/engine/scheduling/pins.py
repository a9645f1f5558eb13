"""Blocks that are kept although no sequence needs them now."""

from __future__ import annotations

from puna.engine.scheduling.contention import Pins


class AllPins:
    """Several kinds of pins; the first go first."""

    def __init__(self, *kinds: Pins) -> None:
        self._kinds = kinds

    @property
    def pinned_bytes(self) -> int:
        return sum(pins.pinned_bytes for pins in self._kinds)

    def unpin_oldest(self) -> bool:
        return any(pins.unpin_oldest() for pins in self._kinds)
