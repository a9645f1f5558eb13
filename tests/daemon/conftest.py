"""Virtual time: what waits for the clock moves the clock, so timers are exact and tests are quick."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.daemon.harness import Daemon
from tests.tiny import TINY, write_tiny


class VirtualTimeSelector(selectors.DefaultSelector):
    now_s = 0.0

    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError("deadlock: everything waits, and no timer is set")
        self.now_s += max(timeout, 0)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual_selector = VirtualTimeSelector()
        super().__init__(self._virtual_selector)

    def time(self) -> float:
        return self._virtual_selector.now_s


@pytest.fixture
def virtual_time() -> Callable[[Callable[[], Coroutine[Any, Any, None]]], None]:
    """Decorator-like: runs an async function to its end in a loop whose clock jumps to the next timer."""

    def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop = VirtualTimeLoop()
        failures: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: failures.append(context))
        try:
            loop.run_until_complete(_finish_everything(main))
        finally:
            loop.close()
        assert not failures

    return run


async def _finish_everything(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await main()
    finally:
        leftover = asyncio.all_tasks() - {asyncio.current_task()}
        for task in leftover:
            task.cancel()
        await asyncio.gather(*leftover, return_exceptions=True)


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> list[bytes]:
    directory = tmp_path_factory.mktemp("gguf")
    return [write_tiny(directory / f"{seed}.gguf", TINY["llama"], seed=seed).read_bytes() for seed in (0, 1)]


@pytest.fixture
def daemon(tmp_path) -> Daemon:
    return Daemon(tmp_path / "models")
