"""A daemon with models of both engines, llama.cpp's server being that of the xllamacpp package."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.foreign_model import write_foreign
from tests.e2e.launching import MODEL, PUNA, address_of, eventually, launch

pytestmark = pytest.mark.e2e

_OPTIONS = {"num_predict": 6, "temperature": 0, "num_ctx": 128}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("second")


@pytest.fixture(scope="module")
def daemon(home: Path) -> Iterator[subprocess.Popen[str]]:
    (home / "models").mkdir()
    variables = {"PUNA_KV_DISK": "0", "PUNA_NUM_THREADS": "1", "PUNA_ENGINE": "auto", "PATH": "/usr/bin:/bin"}
    daemon = launch(home / "models", **variables)
    yield daemon
    daemon.send_signal(signal.SIGTERM)
    daemon.communicate(timeout=30)


@pytest.fixture(scope="module")
def client(
    daemon: subprocess.Popen[str], tmp_path_factory: pytest.TempPathFactory, smollm2_path: Path
) -> Iterator[httpx.Client]:
    address = address_of(daemon)
    threading.Thread(target=daemon.stderr.read, daemon=True).start()  # it must not wait for a reader
    directory = tmp_path_factory.mktemp("files")
    for name, path in (("rwkv", write_foreign(directory / "rwkv.gguf")), (MODEL, smollm2_path)):
        (directory / "Modelfile").write_text(f"FROM {path}\n")
        command = [*PUNA, "create", name, "-f", str(directory / "Modelfile")]
        subprocess.run(command, env={**os.environ, "OLLAMA_HOST": address}, check=True, timeout=60)
    with httpx.Client(base_url=f"http://{address}", timeout=60) as client:
        yield client


def generate(client: httpx.Client, model: str, **fields: object) -> dict[str, object]:
    body = {
        "model": model,
        "prompt": "thethethe",
        "raw": True,
        "stream": False,
        "options": _OPTIONS,
        **fields,
    }
    response = client.post("/api/generate", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def worker_of(client: httpx.Client, name: str) -> int | None:
    processes = client.get("/api/ps").json()["processes"]
    return next((process["pid"] for process in processes if process["name"] == name), None)


def test_an_architecture_of_others_answers_beside_one_of_ours(client: httpx.Client):
    foreign, ours = generate(client, "rwkv"), generate(client, MODEL)
    assert foreign["eval_count"] == ours["eval_count"] == 6
    assert foreign["done_reason"] == "length"
    assert foreign["response"]
    assert generate(client, "rwkv")["response"] == foreign["response"]
    engines = {model["name"]: model["engine"] for model in client.get("/api/ps").json()["models"]}
    assert engines == {"rwkv:latest": "llamacpp", MODEL: "native"}


def test_its_death_harms_nobody_else_and_it_answers_again(client: httpx.Client):
    generate(client, "rwkv"), generate(client, MODEL)
    killed = worker_of(client, "llama.cpp")
    ours = worker_of(client, "worker")
    body = {"model": MODEL, "prompt": "Once", "options": {"num_predict": 100, "temperature": 0}}
    with client.stream("POST", "/api/generate", json=body) as reply:
        lines = reply.iter_lines()
        next(lines)
        os.kill(killed, signal.SIGKILL)
        last = list(lines)[-1]
    assert '"done":true' in last
    assert generate(client, "rwkv")["eval_count"] == 6
    assert worker_of(client, "worker") == ours
    assert eventually(lambda: worker_of(client, "llama.cpp")) != killed


def children_of(worker: int) -> list[int]:
    """The server, and who connects to it."""
    children = [int(pid) for pid in Path(f"/proc/{worker}/task/{worker}/children").read_text().split()]
    assert len(children) == 2
    return children


def is_running(pid: int) -> bool:
    """Not even waited for."""
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("killed", [0, 1, 2])
def test_when_a_part_of_it_is_killed_all_of_it_ends(client: httpx.Client, home: Path, killed: int):
    generate(client, "rwkv")
    worker = worker_of(client, "llama.cpp")
    parts = [worker, *children_of(worker)]
    os.kill(parts[killed], signal.SIGKILL)
    eventually(lambda: not any(map(is_running, parts)))
    eventually(lambda: list((home / ".puna" / "run").iterdir()) == [])
    assert generate(client, "rwkv")["eval_count"] == 6


def test_its_tokenizer_is_its_own(client: httpx.Client):
    assert generate(client, "rwkv")["prompt_eval_count"] == 3
    refused = client.post("/api/tokenize", json={"model": "rwkv", "text": "the"})
    assert refused.status_code == 500
    assert "'rwkv' is not supported" in refused.text


def test_it_is_held_to_json(client: httpx.Client):
    reply = generate(client, "rwkv", format={"enum": ["the"]}, options=_OPTIONS | {"num_predict": 20})
    assert json.loads(reply["response"]) == "the"
    wanted = {"type": "grammar", "syntax": "regex", "definition": "a+"}
    refused = client.post("/api/generate", json={"model": "rwkv", "prompt": "the", "format": wanted})
    assert refused.status_code == 400
    assert "second engine" in refused.text


def test_a_server_ends_with_a_daemon_that_is_killed(tmp_path: Path):
    (tmp_path / "models").mkdir()
    daemon = launch(tmp_path / "models", PUNA_KV_DISK="0", PUNA_ENGINE="auto", PATH="/usr/bin:/bin")
    address = address_of(daemon)
    (tmp_path / "Modelfile").write_text(f"FROM {write_foreign(tmp_path / 'rwkv.gguf')}\n")
    command = [*PUNA, "create", "rwkv", "-f", str(tmp_path / "Modelfile")]
    subprocess.run(command, env={**os.environ, "OLLAMA_HOST": address}, check=True, timeout=60)
    with httpx.Client(base_url=f"http://{address}", timeout=60) as client:
        generate(client, "rwkv")
        worker = worker_of(client, "llama.cpp")
    parts = [worker, *children_of(worker)]
    daemon.kill()
    daemon.communicate(timeout=30)
    eventually(lambda: not any(map(is_running, parts)))
    assert list((tmp_path / ".puna" / "run").iterdir()) == []


def test_its_cage_is_listed(client: httpx.Client):
    generate(client, "rwkv")
    cages = {process["name"]: process["cage"] for process in client.get("/api/ps").json()["processes"]}
    assert "seccomp" in cages["llama.cpp"]
