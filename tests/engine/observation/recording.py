"""A recorder under a clock that tests move by hand."""

from __future__ import annotations

from puna.engine.observation.recorder import Recorder, RequestRecord

MS = 1_000_000


class Clock:
    """Time in milliseconds."""

    def __init__(self) -> None:
        self.ms = 1000

    def __call__(self) -> float:
        """Seconds."""
        return self.ms / 1000

    def monotonic_ns(self) -> int:
        return self.ms * MS


def submit(recorder: Recorder, num_prompt: int = 5) -> RequestRecord:
    return recorder.submitted("r", "m", num_prompt)


def run_step(recorder: Recorder, clock: Clock, *phases_ms: int) -> None:
    recorder.begin_step()
    for duration_ms in phases_ms:
        clock.ms += duration_ms
        recorder.mark()
    recorder.end_step("m", 2, 10, 1)
