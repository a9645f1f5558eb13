"""Looks at something again and again, while something else happens, or until it has happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

_PAUSE_S = 0.01


@dataclass(frozen=True)
class Sample(Generic[T]):
    """at: seconds of the clock that streams have, when the value was known."""

    at: float
    value: T


@contextmanager
def watching(look: Callable[[], T], interval_s: float) -> Iterator[list[Sample[T]]]:
    """Yields the samples, which become more until the block is left; then raises what `look` raised."""
    samples: list[Sample[T]] = []
    ended = threading.Event()

    def watch() -> None:
        while True:
            value = look()
            samples.append(Sample(time.perf_counter(), value))
            if ended.wait(interval_s):
                return

    with ThreadPoolExecutor(1) as pool:
        watcher = pool.submit(watch)
        try:
            yield samples
        finally:
            ended.set()
        watcher.result()


def wait_until(condition: Callable[[], bool], patience_s: float, otherwise: str) -> float:
    """Seconds that it took. Raises RuntimeError with `otherwise` after patience_s."""
    start = time.perf_counter()
    while not condition():
        if time.perf_counter() - start > patience_s:
            raise RuntimeError(f"{otherwise} after {patience_s:g} s")
        time.sleep(_PAUSE_S)
    return time.perf_counter() - start
