"""Sessions over the socket: saved, listed, restored by another worker, while streams go on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from puna.engine.offload.session_status import SessionError, SessionStatus, UnknownSession
from puna.kv.files.block_files import BlockFiles
from puna.kv.files.session_manifest import SavedSessionError
from puna.worker.engine.client import EngineClient
from puna.worker.engine.messages import (
    GetStats,
    ListSessions,
    LoadSession,
    RemoveSession,
    SaveSession,
    Unload,
)
from tests.engine.toy import BLOCK_BYTES, expected_tokens, toy_request
from tests.worker.harness import generate, load, outputs_of, served

pytestmark = pytest.mark.native

TOY = Path("0")
PROMPT = list(range(40))


async def talk(client: EngineClient, session: str = "a") -> list[int]:
    return PROMPT + await generate(client, toy_request("talk", PROMPT, session=session))


async def cached_tokens(client: EngineClient, prompt: list[int]) -> int:
    outputs = [output async for output in outputs_of(client, toy_request("probe", prompt, 1))]
    assert outputs[-1].tokens == expected_tokens(prompt, 1)
    return outputs[-1].stats.cached_tokens


def manifest(directory: Path) -> Path:
    (path,) = directory.glob("*/manifest")
    return path


def test_a_session_moves_to_another_worker(tmp_path: Path):
    async def main() -> None:
        status = SessionStatus(model_id="toy", name="a", num_tokens=49, kv_bytes=4 * BLOCK_BYTES)
        async with served(sessions_dir=str(tmp_path)) as s:
            await load(s.client, "toy", TOY)
            history = await talk(s.client)
            assert await s.client.call(ListSessions()) == [status]
            await s.client.call(SaveSession("toy", "a"))
        async with served(sessions_dir=str(tmp_path)) as s:
            await load(s.client, "toy", TOY)
            assert await s.client.call(ListSessions()) == []
            await s.client.call(LoadSession("toy", "a"))
            assert await s.client.call(ListSessions()) == [status]
            assert await cached_tokens(s.client, history) == 49

    asyncio.run(main())


def test_a_removed_session_costs_no_memory_for_long():
    async def main() -> None:
        async with served(kv_idle_s=0.0) as s:
            await load(s.client, "toy", TOY)
            await talk(s.client)
            assert await s.client.call(RemoveSession("toy", "a"))
            assert not await s.client.call(RemoveSession("toy", "a"))
            while (await s.client.call(GetStats())).models[0].committed_kv_bytes:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_errors_come_back_as_what_they_are(tmp_path: Path):
    async def main() -> None:
        async with served(sessions_dir=str(tmp_path)) as s:
            await load(s.client, "toy", TOY)
            await talk(s.client)
            await s.client.call(SaveSession("toy", "a"))
            with pytest.raises(UnknownSession, match="'b' is not in memory"):
                await s.client.call(SaveSession("toy", "b"))
            with pytest.raises(UnknownSession, match="'b' was not saved"):
                await s.client.call(LoadSession("toy", "b"))
            await s.client.call(Unload("toy"))
            with pytest.raises(SessionError, match="not loaded"):
                await s.client.call(LoadSession("toy", "a"))
            manifest(tmp_path).write_text("garbage that is long enough to be one " * 9)
            with pytest.raises(SavedSessionError, match="session 'a' is not a saved session"):
                await s.client.call(LoadSession("toy", "a"))

    asyncio.run(main())


class Gate:
    """A disk that does not go on until `opened`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        replace = BlockFiles.replace

        def gated(*arguments: Any) -> None:
            self.reached.set()
            assert self.opened.wait(60)
            replace(*arguments)

        monkeypatch.setattr(BlockFiles, "replace", gated)


def test_streams_go_on_while_the_disk_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        gate = Gate(monkeypatch)
        async with served(sessions_dir=str(tmp_path)) as s:
            await load(s.client, "toy", TOY)
            await talk(s.client)
            saving = asyncio.create_task(s.client.call(SaveSession("toy", "a")))
            await asyncio.to_thread(gate.reached.wait)
            assert await generate(s.client, toy_request("r", [1], 20)) == expected_tokens([1], 20)
            assert not saving.done()
            gate.opened.set()
            await saving
            assert manifest(tmp_path).exists()

    asyncio.run(main())


def test_a_save_that_is_in_the_way_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        gate = Gate(monkeypatch)
        async with served(sessions_dir=str(tmp_path)) as s:
            await load(s.client, "toy", TOY)
            await talk(s.client)
            saving = asyncio.create_task(s.client.call(SaveSession("toy", "a")))
            await asyncio.to_thread(gate.reached.wait)
            await s.client.call(Unload("toy"))
            gate.opened.set()
            with pytest.raises(SavedSessionError, match="given up"):
                await saving

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


def test_leaving_while_a_session_is_written_hangs_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        gate = Gate(monkeypatch)
        async with served(sessions_dir=str(tmp_path)) as s:  # which checks that nothing is left
            await load(s.client, "toy", TOY)
            await talk(s.client)
            saving = asyncio.create_task(s.client.call(SaveSession("toy", "a")))
            await asyncio.to_thread(gate.reached.wait)
            gate.opened.set()
            await s.client.close()
            await asyncio.gather(saving, return_exceptions=True)

    asyncio.run(main())
