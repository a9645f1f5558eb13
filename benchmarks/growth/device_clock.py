"""What the benchmark's devices have in common, of this build and of earlier ones."""

from __future__ import annotations

VOCABULARY = 128
PERIOD = 32
"""After so many tokens a text repeats."""
BLOCK_BYTES = 64


class DeviceClock:
    """Seconds, of the device's steps alone."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s
