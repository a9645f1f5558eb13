"""How long a disk takes, as it is measured."""

from __future__ import annotations

_WEIGHT = 0.5  # of a new measurement
_FORGIVENESS = 1.5


class Throughput:
    """A moving average."""

    def __init__(self) -> None:
        self._bytes_per_s: float | None = None

    def observe(self, num_bytes: int, seconds: float) -> None:
        if num_bytes and seconds > 0:
            speed = num_bytes / seconds
            before = self._bytes_per_s or speed
            self._bytes_per_s = before + _WEIGHT * (speed - before)

    def seconds(self, num_bytes: int) -> float | None:
        """None: nothing is known."""
        return None if self._bytes_per_s is None else num_bytes / self._bytes_per_s

    def forgive(self) -> None:
        """It was not used because it is slow: one slow moment must not be believed for ever."""
        if self._bytes_per_s is not None:
            self._bytes_per_s *= _FORGIVENESS
