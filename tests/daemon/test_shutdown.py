"""A signal leaves time to save what is cached; a second one does not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from puna.daemon.server import _close_when_asked, _Shutdown

pytestmark = pytest.mark.unit


class FakeRuntime:
    def __init__(self, save_s: float) -> None:
        self.did: list[str] = []
        self._save_s = save_s

    async def save_prefixes(self) -> None:
        self.did.append("begin")
        await asyncio.sleep(self._save_s)
        self.did.append("saved")

    async def close(self) -> None:
        self.did.append("closed")


@pytest.mark.parametrize(
    ("num_signals", "did"), [(1, ["begin", "saved", "closed"]), (2, ["begin", "closed"])]
)
def test_only_one_who_hurries_does_not_wait_for_what_is_saved(virtual_time, num_signals, did):
    async def main():
        runtime, shutdown = FakeRuntime(save_s=4.0), _Shutdown(SimpleNamespace())
        closing = asyncio.create_task(_close_when_asked(runtime, shutdown))
        for _ in range(num_signals):
            shutdown.on_signal()
            await asyncio.sleep(0.1)
        await closing
        assert runtime.did == did
        await asyncio.sleep(10)
        assert runtime.did == did

    virtual_time(main)
