"""Sessions over the socket: saved, listed, restored by another worker, while streams go on."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from puna.engine.offload import session_files
from puna.engine.offload.session_status import SessionError, SessionStatus, UnknownSession
from puna.kv.checkpoint import CheckpointError, CheckpointMismatch, write_checkpoint
from puna.kv.checkpoint_files import CheckpointFiles
from puna.worker.calls import CallFailed
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


async def save(client: EngineClient, name: str, path: Path) -> None:
    draft = CheckpointFiles(path.parent).begin(path.name)
    try:
        await client.call(SaveSession("toy", name), [draft.descriptor])
    except BaseException:
        draft.discard()
        raise
    draft.publish()


async def load_session(client: EngineClient, model_id: str, path: Path) -> None:
    descriptor = CheckpointFiles(path.parent).open(path.name)
    try:
        await client.call(LoadSession(model_id, "a"), [descriptor])
    finally:
        os.close(descriptor)


def test_a_session_moves_to_another_worker(tmp_path: Path):
    async def main() -> None:
        path = tmp_path / "a.kv"
        status = SessionStatus(model_id="toy", name="a", num_tokens=49, kv_bytes=4 * BLOCK_BYTES)
        async with served() as s:
            await load(s.client, "toy", TOY)
            history = await talk(s.client)
            assert await s.client.call(ListSessions()) == [status]
            await save(s.client, "a", path)
        async with served() as s:
            await load(s.client, "toy", TOY)
            assert await s.client.call(ListSessions()) == []
            await load_session(s.client, "toy", path)
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
        async with served() as s:
            await load(s.client, "toy", TOY)
            await load(s.client, "other", Path("1"))
            await talk(s.client)
            path, garbage = tmp_path / "a.kv", tmp_path / "garbage.kv"
            await save(s.client, "a", path)
            garbage.write_text("garbage that is long enough")
            with pytest.raises(UnknownSession, match="'b' is not in memory"):
                await save(s.client, "b", path)
            with pytest.raises(CheckpointMismatch, match="another model: toy, not other"):
                await load_session(s.client, "other", path)
            with pytest.raises(SessionError, match="not loaded"):
                await load_session(s.client, "none", path)
            with pytest.raises(CheckpointError, match="session 'a' is not a saved session"):
                await load_session(s.client, "toy", garbage)
            with pytest.raises(CallFailed, match="0 descriptors"):
                await s.client.call(LoadSession("toy", "a"))

    asyncio.run(main())


class Gate:
    """A disk that does not go on until `opened`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        monkeypatch.setattr(session_files, "write_checkpoint", self._write)

    def _write(self, *arguments: object) -> None:
        self.reached.set()
        assert self.opened.wait(60)
        write_checkpoint(*arguments)


def test_streams_go_on_while_the_disk_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        gate = Gate(monkeypatch)
        async with served() as s:
            await load(s.client, "toy", TOY)
            await talk(s.client)
            saving = asyncio.create_task(save(s.client, "a", tmp_path / "a.kv"))
            await asyncio.to_thread(gate.reached.wait)
            assert await generate(s.client, toy_request("r", [1], 20)) == expected_tokens([1], 20)
            assert not saving.done()
            gate.opened.set()
            await saving
            assert (tmp_path / "a.kv").exists()

    asyncio.run(main())


def test_a_save_that_is_in_the_way_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        gate = Gate(monkeypatch)
        async with served() as s:
            await load(s.client, "toy", TOY)
            await talk(s.client)
            saving = asyncio.create_task(save(s.client, "a", tmp_path / "a.kv"))
            await asyncio.to_thread(gate.reached.wait)
            await s.client.call(Unload("toy"))
            gate.opened.set()
            with pytest.raises(CheckpointError, match="given up"):
                await saving

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []
