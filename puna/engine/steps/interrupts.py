"""A step that nobody waits for any more ends early."""

from __future__ import annotations

import threading

from puna._native import StepControl

_NOBODY: set[str] = set()


class Interrupts:
    """Requests of the step that is under way. interrupt() is for any thread, the rest for the engine's."""

    def __init__(self) -> None:
        self.control = StepControl()
        self._lock = threading.Lock()
        self._wanted = _NOBODY  # of the step under way, those not given up

    def begin(self, request_ids: set[str], limit_s: float | None = None) -> None:
        """A step of these requests begins. limit_s: after so long it is to be suspended."""
        with self._lock:
            self._wanted = request_ids
            self.control.begin()
            if limit_s is not None:
                self.control.suspend_in(limit_s)

    def end(self) -> None:
        """The step is over, or never came about: it can no longer be stopped."""
        with self._lock:
            self._wanted = _NOBODY

    def interrupt(self, request_id: str) -> None:
        """Nobody waits for this request any more. If others are in its step, that goes on for them."""
        with self._lock:
            if request_id in self._wanted:
                self._wanted.remove(request_id)
                if not self._wanted:
                    self.control.stop()
