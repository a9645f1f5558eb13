"""Answers to the daemon's calls."""

from __future__ import annotations

import logging
from collections.abc import Callable

from puna.backends.base import ModelLoadError
from puna.worker.calls import CallServer

log = logging.getLogger(__name__)


class Answers:
    """Each call gets one, a result or an exception."""

    def __init__(self, calls: CallServer) -> None:
        self._calls = calls

    def of(self, call: int, work: Callable[[], object]) -> None:
        """What `work` returns or raises: a bug in one call must not end the others."""
        try:
            result = work()
        except ModelLoadError as error:
            self._calls.fail(call, error)
        except Exception as error:
            log.exception("a call failed")
            self._calls.fail(call, error)
        else:
            self._calls.answer(call, result)

    def end(self, call: int, error: Exception | None = None) -> None:
        """The end of what was not done at once."""
        if error is None:
            self._calls.answer(call, None)
        else:
            self._calls.fail(call, error)
