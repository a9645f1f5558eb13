"""A step that nobody waits for any more ends early."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from puna._native import NativeError, StepControl


class StepInterrupted(Exception):
    """The step was cut off, and is as if it had never been."""


class Interrupts:
    """Whose step is under way. interrupt() is for any thread, the rest for the engine's."""

    def __init__(self) -> None:
        self.control = StepControl()
        self._lock = threading.Lock()
        self._wanted: set[str] = set()  # of the step under way, those not given up

    @contextmanager
    def watching(self, request_ids: Iterable[str]) -> Iterator[None]:
        """A step of these requests. Raises StepInterrupted if all of them were given up meanwhile."""
        with self._lock:
            self._wanted = set(request_ids)
            self.control.begin()
        try:
            yield
        except NativeError as error:
            if self.control.is_stopped:
                raise StepInterrupted from error
            raise
        finally:
            with self._lock:
                self._wanted = set()

    def interrupt(self, request_id: str) -> None:
        """Nobody waits for this request any more. If others are in its step, that goes on for them."""
        with self._lock:
            if request_id in self._wanted:
                self._wanted.remove(request_id)
                if not self._wanted:
                    self.control.stop()
