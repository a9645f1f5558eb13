"""Other processes and the daemon's own models under one budget, by the daemon's socket."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.launching import MODEL, TIMEOUT_S, address_of, engine_worker, eventually, launch
from tests.kvcached.service.client_process import ClientProcess, mapped
from tests.kvcached.service.stubs import Client

pytestmark = pytest.mark.e2e

MIB = 1 << 20
LIMIT = 64 * MIB


class Daemon:
    def __init__(self, process: subprocess.Popen[str], url: str, path: Path) -> None:
        self.process = process
        self.url = url
        self.path = path

    def get(self, path: str) -> Any:
        return httpx.get(f"{self.url}{path}", timeout=TIMEOUT_S).json()

    def post(self, path: str, **body: Any) -> Any:
        return httpx.post(f"{self.url}{path}", json=body, timeout=TIMEOUT_S).json()

    def generate(self, prompt: str, num_predict: int = 8) -> str:
        """Again and again, while clients hold more of the limit than leaves room for the request."""
        options = {"temperature": 0, "num_predict": num_predict}
        body = {"model": MODEL, "prompt": prompt, "raw": True, "stream": False, "options": options}
        while "KV memory" in (reply := self.post("/api/generate", **body)).get("error", ""):
            time.sleep(0.02)
        return reply["response"]

    def leased(self) -> int:
        return self.get("/api/kv")["leased"]

    def worker(self) -> int:
        return engine_worker(self.process.pid)


def start(models: Path, path: Path) -> subprocess.Popen[str]:
    return launch(
        models,
        OLLAMA_KVCACHED_SOCKET=str(path),
        OLLAMA_KVCACHED_MEMORY_GB="64MiB",
        PUNA_KV_DISK="0",
    )


@contextmanager
def running(models: Path, path: Path) -> Iterator[Daemon]:
    process = start(models, path)
    try:
        address = address_of(process)
        eventually(path.exists)
        yield Daemon(process, f"http://{address}", path)
    finally:
        process.terminate()  # a killed one would leave its lock in /dev/shm
        process.communicate()


@pytest.fixture
def daemon(models, tmp_path) -> Iterator[Daemon]:
    with running(models, tmp_path / "kvcached.sock") as daemon:
        yield daemon


@contextmanager
def clients(daemon: Daemon, count: int) -> Iterator[list[ClientProcess]]:
    processes = [ClientProcess(daemon.path) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()


def test_clients_and_models_share_one_limit(daemon):
    prompt = "One two three four five six seven eight nine ten. " * 20
    before = daemon.generate(prompt)
    cached = daemon.get("/api/kv")
    assert cached["kv_limit"] == LIMIT
    assert cached["committed"] > 0
    with clients(daemon, 1) as (client,):
        made = client.call("allocate", size=LIMIT)  # what is only cached makes room
        assert made["size"] == LIMIT
        assert daemon.leased() == LIMIT
        assert daemon.get("/api/kv")["committed"] == 0
        assert "KV memory" in daemon.post("/api/generate", model=MODEL, prompt="Hello", stream=False)["error"]
        assert client.call("allocate", size=(1 << 63) - 1)["error"] == "RESOURCE_EXHAUSTED"
        refused = client.call("allocate", size=1)
        assert refused["error"] == "RESOURCE_EXHAUSTED"
        assert f"process {client.process.pid} 64 MiB" in refused["text"]
        assert client.call("free", handle=made["handle"]) == LIMIT
    assert daemon.generate(prompt) == before


def test_killed_client_leaves_nothing(daemon):
    with clients(daemon, 2) as (victim, survivor):
        for _ in range(8):
            victim.call("allocate", size=5 * MIB)
        kept = survivor.call("allocate", size=MIB)
        assert daemon.leased() == 41 * MIB
        victim.process.send_signal(signal.SIGKILL)
        eventually(lambda: daemon.leased() == MIB)
        assert daemon.generate("Hello")
        assert survivor.call("free", handle=kept["handle"]) == MIB
        assert daemon.leased() == 0


def test_random_calls_while_the_model_works_and_the_limit_changes(daemon):
    daemon.generate("Hello")
    texts: list[str] = []
    prompts = [f"{number} facts about the number {number * 7}:" for number in range(2, 8)]
    with clients(daemon, 3) as processes:
        for seed, process in enumerate(processes):
            process.send("churn", seed=seed, num_calls=400, num_threads=4, max_size=MIB)
        replies: list[Any] = []
        receiving = threading.Thread(target=lambda: replies.extend(each.receive() for each in processes))
        generating = threading.Thread(target=lambda: texts.extend(map(daemon.generate, prompts)))
        receiving.start()
        generating.start()
        rng = random.Random(1)
        while receiving.is_alive() or generating.is_alive():
            daemon.post("/api/kv/limit", kv_limit=rng.randrange(16 * MIB, 48 * MIB))
            before = LIMIT  # what is above a lowered limit goes as it is freed, and nothing is added to it
            for _ in range(5):
                memory = daemon.get("/api/kv")
                num_bytes = memory["committed"] + memory["leased"]
                assert num_bytes <= max(before, memory["kv_limit"])
                before = num_bytes
        daemon.post("/api/kv/limit", kv_limit=LIMIT)
        assert all("held" in reply for reply in replies), replies
        held = [sum(reply["held"].values()) for reply in replies]
        assert daemon.leased() == sum(held) > 0
        processes[0].kill()
        eventually(lambda: daemon.leased() == sum(held[1:]))
        for process, reply in zip(processes[1:], replies[1:], strict=True):
            for handle, size in reply["held"].items():
                assert process.call("free", handle=int(handle)) == size
        assert daemon.leased() == 0
        errors = {kind for reply in replies for kind in reply["errors"]}
        assert errors == {"RESOURCE_EXHAUSTED", "NOT_FOUND"}
    assert texts == [daemon.generate(prompt) for prompt in prompts]


def test_allocations_outlive_the_worker(daemon):
    with clients(daemon, 1) as (client,):
        made = client.call("allocate", size=10 * MIB)
        os.kill(daemon.worker(), signal.SIGKILL)
        eventually(lambda: daemon.get("/api/kv").get("leased") == 10 * MIB)
        assert client.call("allocate", size=LIMIT)["error"] == "RESOURCE_EXHAUSTED"
        assert client.call("free", handle=made["handle"]) == 10 * MIB
        assert daemon.leased() == 0


def test_end_of_the_daemon(daemon):
    client = Client(daemon.path)
    name = client.allocate(MIB).shm_name
    with mapped(name) as memory:
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(TIMEOUT_S) == 0
        memory[0] = 1
    client.close()
    assert not daemon.path.exists()
    assert not list(Path("/dev/shm").glob(f"{name[1:].rpartition('-')[0]}*"))
    assert "Traceback" not in daemon.process.stderr.read()


def test_daemon_after_a_killed_one(models, tmp_path):
    path = tmp_path / "kvcached.sock"
    with running(models, path) as daemon, clients(daemon, 1) as (client,):
        name = client.call("allocate", size=MIB)["shm_name"]
        daemon.process.kill()
        daemon.process.wait()
    assert path.exists()
    assert Path(f"/dev/shm{name}").exists()
    with running(models, path) as daemon, clients(daemon, 1) as (client,):
        assert not Path(f"/dev/shm{name}").exists()
        assert client.call("allocate", size=LIMIT)["size"] == LIMIT


def test_socket_in_use_is_said_clearly(daemon, models):
    second = start(models, daemon.path)
    _, errors = second.communicate(timeout=TIMEOUT_S)
    assert second.returncode == 1
    assert errors.splitlines()[-1] == f"Error: listen unix {daemon.path}: bind: address already in use"
    assert daemon.leased() == 0
