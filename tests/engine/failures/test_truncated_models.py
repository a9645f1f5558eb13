"""A model file that is cut short while requests run fails that model's requests, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from puna._native import catch_bus_errors
from puna.backends.base import ModelLoadError
from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request
from tests.engine.toy import GREEDY, Results, run_all
from tests.forward import load_file
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

NUM_TOKENS = 100
LOST = "the model's file was cut short while it was in use"


@pytest.fixture
def backend() -> Iterator[CpuBackend]:
    catch_bus_errors()
    backend = CpuBackend(num_threads=2)
    yield backend
    backend.close()


def request(request_id: str, model_id: str) -> Request:
    return Request(id=request_id, model_id=model_id, prompt=[1, 2, 3], sampling=GREEDY, max_tokens=NUM_TOKENS)


def test_only_the_requests_of_that_model_fail(backend: CpuBackend, tmp_path: Path) -> None:
    paths = {name: write_tiny(tmp_path / name, TINY["llama"], seed=i) for i, name in enumerate("ab")}
    engine = EngineCore(backend, EngineSettings(kv_limit_bytes=16 << 20))
    for name, path in paths.items():
        engine.attach_model(name, load_file(backend, path))
    engine.submit(request("alone", "b"))
    alone = run_all(engine).tokens["alone"]

    results = Results()
    engine.submit(request("lost", "a"))
    engine.submit(request("kept", "b"))
    while not (results.tokens.get("lost") and results.tokens.get("kept")):
        results.add(engine.step())
    os.truncate(paths["a"], 4096)
    engine.submit(request("late", "a"))
    run_all(engine, results)
    for request_id in ("lost", "late"):
        assert results.last[request_id].error == f"the model failed to run: {LOST}"
    assert results.tokens["kept"] == alone

    engine.unload_model("a")  # and once its file is whole again
    write_tiny(paths["a"], TINY["llama"])
    engine.attach_model("a", load_file(backend, paths["a"]))
    engine.submit(request("again", "a"))
    assert len(run_all(engine).tokens["again"]) == NUM_TOKENS
    engine.close()


def test_a_file_that_is_cut_short_while_it_is_loaded_is_refused(
    backend: CpuBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TINY["llama"])

    def cut_first(*arguments: object) -> object:
        os.truncate(path, 4096)
        return lower(*arguments)

    lower = sys.modules["puna.backends.cpu.compiling"].lower
    monkeypatch.setattr("puna.backends.cpu.compiling.lower", cut_first)
    with pytest.raises(ModelLoadError, match=LOST):
        load_file(backend, path)


FOREIGN = """
import mmap, os, signal, sys, tempfile
from puna._native import catch_bus_errors
if sys.argv[1] == "guarded":
    catch_bus_errors()
with tempfile.TemporaryFile() as file:
    file.truncate(1 << 16)
    data = mmap.mmap(file.fileno(), 1 << 16)
    file.truncate(0)
    if sys.argv[2] == "read":
        data[0]
    else:
        os.kill(os.getpid(), signal.SIGBUS)
print("alive")
"""


@pytest.mark.parametrize("handler", ["guarded", "plain"])
@pytest.mark.parametrize("cause", ["read", "kill"])
def test_bus_errors_elsewhere_end_the_process(handler: str, cause: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", FOREIGN, handler, cause], check=False, capture_output=True, timeout=60
    )
    assert result.returncode == -signal.SIGBUS
    assert b"alive" not in result.stdout
