"""A worker outlives bad files and Ctrl-C, tells of its death, and never outlives the daemon."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from puna.backends.base import ModelLoadError
from puna.config.settings import Settings
from puna.daemon.worker.settings import worker_settings
from puna.engine import Request, SamplingParams
from puna.worker.call_client import WorkerDied
from puna.worker.calls import open_channel
from puna.worker.engine.messages import GetStats, Unload, WorkerSettings
from puna.worker.engine.process import WorkerProcess
from tests.tiny import TINY, write_tiny
from tests.worker.harness import generate, load, outputs_of

pytestmark = pytest.mark.e2e


def settings_of(**settings: Any) -> WorkerSettings:
    return worker_settings(
        Settings(
            models=Path("/nowhere"),
            **{"num_threads": 1, "kv_limit_bytes": 64 << 20, "kv_disk_bytes": 0, **settings},
        ),
        None,
    )


@asynccontextmanager
async def started(**settings: Any) -> AsyncIterator[WorkerProcess]:
    worker = await WorkerProcess.start(settings_of(**settings))
    try:
        yield worker
    finally:
        await worker.terminate()


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf", TINY["llama"])


def request(request_id: str = "r", max_tokens: int | None = 20) -> Request:
    sampling = SamplingParams(temperature=0)
    return Request(id=request_id, model_id="m", prompt=[1, 2, 3], sampling=sampling, max_tokens=max_tokens)


def run(main: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(main())


def test_a_worker_generates(model_path: Path):
    async def main() -> None:
        async with started() as worker:
            info = await load(worker.client, "m", model_path)
            assert (info.architecture, info.context_length) == ("llama", 2048)
            assert len(await generate(worker.client, request())) == 20
            assert (await worker.client.call(GetStats())).kv_limit_bytes == 64 << 20

    run(main)


@pytest.mark.parametrize("module", ["puna.worker.engine", "puna.worker.text"])
def test_what_others_left_open_is_closed(module: str, tmp_path: Path):
    ours, theirs = open_channel()
    with (tmp_path / "secret").open("w") as secret:
        arguments = ["--channel", *map(str, theirs.numbers), "--parent", str(os.getpid())]
        child = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], pass_fds=[*theirs.numbers, secret.fileno()]
        )
        try:
            directory = Path(f"/proc/{child.pid}/fd")
            while any(str(path.readlink()) == secret.name for path in directory.iterdir() if path.exists()):
                time.sleep(0.01)
            assert child.poll() is None
        finally:
            ours.close()
            theirs.close()
            child.kill()
            child.wait()


def test_keys_and_values_are_stored_as_asked(model_path: Path):
    async def main() -> None:
        async with started(kv_type="q8_0") as worker:
            info = await load(worker.client, "m", model_path)
            assert len(await generate(worker.client, request())) == 20
        tiny = TINY["llama"]
        groups = -(-tiny.head_dim // 32)  # 32 values in one byte each, and a scale
        assert info.block_bytes == tiny.layers * 2 * tiny.kv_heads * groups * 16 * 34

    run(main)


def test_limits_are_the_engines(model_path: Path):
    async def main() -> None:
        async with started(max_running=1, max_queue=1, kv_idle_s=math.inf) as worker:
            await load(worker.client, "m", model_path)
            streams = [outputs_of(worker.client, request(name, max_tokens=None)) for name in "abc"]
            first = [asyncio.create_task(anext(stream)) for stream in streams]
            assert (await first[0]).finish_reason is None  # runs
            assert (await first[2]).finish_reason == "busy"
            assert not first[1].done()  # waits
            first[1].cancel()
            await streams[0].aclose()
            await asyncio.sleep(1.2)  # an idle worker gives memory back, and goes on
            assert len(await generate(worker.client, request())) == 20

    run(main)


def test_bad_files_come_back_as_text_and_the_worker_goes_on(model_path: Path, tmp_path: Path):
    data = model_path.read_bytes()
    bad = {
        "missing.gguf": None,
        "empty.gguf": b"",
        "text.gguf": b"this is no model",
        "truncated.gguf": data[: len(data) // 2],
        "cut.gguf": data[:1000],
        "damaged.gguf": data[:24] + bytes(255 for _ in range(64)) + data[88:],
    }
    for name, content in bad.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)

    async def main() -> None:
        async with started() as worker:
            for name in [*bad, ""]:  # the last: a directory
                with pytest.raises(ModelLoadError, match=name or str(tmp_path)):
                    await load(worker.client, name, tmp_path / name)
            await load(worker.client, "m", model_path)
            assert len(await generate(worker.client, request())) == 20

    run(main)


def test_killing_the_worker_ends_its_streams(model_path: Path):
    async def main() -> None:
        async with started() as worker:
            await load(worker.client, "m", model_path)
            stream = outputs_of(worker.client, request(max_tokens=None))
            await anext(stream)
            os.kill(worker.pid, signal.SIGKILL)
            with pytest.raises(WorkerDied, match="unexpectedly stopped"):
                async for _ in stream:
                    pass
            assert await worker.wait() == -signal.SIGKILL
            for call in (GetStats(), Unload("m")):
                with pytest.raises(WorkerDied):
                    await worker.client.call(call)

    run(main)


def test_a_model_file_that_is_cut_short_fails_only_its_own_requests(model_path: Path, tmp_path: Path):
    lost_path = write_tiny(tmp_path / "lost.gguf", TINY["llama"])

    async def main() -> None:
        async with started() as worker:
            await load(worker.client, "m", model_path)
            await load(worker.client, "lost", lost_path)
            lost = outputs_of(worker.client, replace(request("lost", max_tokens=None), model_id="lost"))
            await anext(lost)
            os.truncate(lost_path, 4096)
            last = [output async for output in lost][-1]
            assert last.error == "the model failed to run: the model's file was cut short while it was in use"
            assert len(await generate(worker.client, request())) == 20

    run(main)


def test_ctrl_c_is_left_to_the_daemon(model_path: Path):
    async def main() -> None:
        async with started() as worker:
            await load(worker.client, "m", model_path)
            os.kill(worker.pid, signal.SIGINT)
            assert len(await generate(worker.client, request())) == 20

    run(main)


def test_terminate_ends_it_in_order_and_only_once(model_path: Path):
    async def main() -> None:
        worker = await WorkerProcess.start(settings_of())
        await load(worker.client, "m", model_path)
        stream = outputs_of(worker.client, request(max_tokens=None))
        await anext(stream)
        await worker.terminate()
        await worker.terminate()
        assert await worker.wait() == 0
        with pytest.raises(WorkerDied):
            async for _ in stream:
                pass

    run(main)


def test_a_worker_that_cannot_start_says_so():
    async def main() -> None:
        with pytest.raises(WorkerDied, match="at its start, with status 1"):
            await WorkerProcess.start(settings_of(num_threads=-1))

    run(main)


def test_an_idle_worker_uses_no_processor_time(model_path: Path):
    def ticks(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    async def main() -> None:
        async with started() as worker:
            await load(worker.client, "m", model_path)
            await generate(worker.client, request())
            await asyncio.sleep(0.2)
            before = ticks(worker.pid)
            await asyncio.sleep(1.0)
            assert ticks(worker.pid) - before <= 2

    run(main)


PARENT = """
import asyncio, sys
from tests.worker.test_process import WorkerProcess, settings_of
async def main():
    worker = await WorkerProcess.start(settings_of())
    print(worker.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def test_a_worker_dies_with_its_daemon():
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, cwd=root) as parent:
        assert parent.stdout is not None
        worker_pid = int(parent.stdout.readline())
        assert is_running(worker_pid)
        parent.kill()
    while is_running(worker_pid):
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
