"""A text that an encoder computes for long lets others go on, and what it needs is counted."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Literal

import pytest

from puna._native import catch_bus_errors
from puna.backends.cpu import CpuBackend
from puna.backends.cpu.backend import CpuModel
from puna.engine import EngineCore, EngineSettings, Request
from tests.engine.toy import Results, run_all
from tests.forward import load_file
from tests.tiny import ENCODERS, TINY, write_tiny

pytestmark = pytest.mark.native

AT_ONCE = {"text_step_s": 0.0, "unnoticed_s": 0.0, "max_slowdown": 0.0}
"""Steps of texts are suspended behind their first piece of work."""
POOLING: dict[str, Literal["mean", "cls"]] = {
    "bert": "mean",
    "jina-bert-v3": "mean",
    "modern-bert": "cls",
    "nomic-bert-moe": "mean",
    "t5encoder": "mean",
}


def text(name: str, length: int, pooling: Literal["mean", "cls"] = "mean") -> Request:
    prompt = [i * (7 + length) % 260 for i in range(length)]
    return Request(id=name, model_id="e", prompt=prompt, pooling=pooling)


def engine_with(
    backend: CpuBackend, encoder: Path, other: Path | None = None, **fields: object
) -> EngineCore:
    engine = EngineCore(backend, EngineSettings(kv_limit_bytes=1 << 24, **fields))
    engine.attach_model("e", load_file(backend, encoder))
    if other is not None:
        engine.attach_model("d", load_file(backend, other))
    return engine


def embedding(results: Results, name: str) -> bytes:
    assert results.last[name].error is None
    return results.last[name].embedding


@pytest.fixture(scope="module")
def backend():
    backend = CpuBackend(num_threads=2)
    yield backend
    backend.close()


@pytest.mark.parametrize("weight_type", ["F32", "Q8_0"])
@pytest.mark.parametrize("name", POOLING)
def test_others_go_on_and_no_bit_changes(
    name: str, weight_type: str, backend: CpuBackend, tmp_path: Path
) -> None:
    encoder = write_tiny(tmp_path / "e.gguf", ENCODERS[name], weight_type)
    other = write_tiny(tmp_path / "d.gguf", TINY["llama"])
    whole = engine_with(backend, encoder, other, text_step_s=60.0, unnoticed_s=60.0)
    whole.submit(text("long", 250, POOLING[name]))
    whole.submit(text("short", 30, POOLING[name]))
    expected = run_all(whole)
    whole.close()
    engine = engine_with(backend, encoder, other, **AT_ONCE)
    engine.submit(text("long", 250, POOLING[name]))
    engine.submit(text("short", 30, POOLING[name]))
    assert engine.step() == []
    engine.submit(Request(id="reply", model_id="d", prompt=[1, 2, 3], max_tokens=3))
    results = Results()
    num_steps = 0
    while "long" not in results.last:
        results.add(engine.step())
        engine.check()
        num_steps += 1
    assert num_steps > 30
    assert "reply" in results.last
    run_all(engine, results)
    engine.close()
    for each in ("long", "short"):
        assert embedding(results, each) == embedding(expected, each) != b""


def test_who_is_cancelled_while_a_step_is_suspended_harms_nobody(backend: CpuBackend, tmp_path: Path) -> None:
    engine = engine_with(backend, write_tiny(tmp_path / "e.gguf", ENCODERS["bert"]), **AT_ONCE)
    for name in ("a", "b"):
        engine.submit(text(name, 100))
    expected = embedding(run_all(engine), "b")
    for cancelled in (["a"], ["b", "a"]):
        for name in ("a", "b"):
            engine.submit(text(name, 100))
        results = Results()
        for _ in range(7):
            results.add(engine.step())
        assert results.last == {}
        for name in cancelled:
            engine.cancel(name)
        engine.submit(text("next", 100))
        run_all(engine, results)
        assert [results.last[name].finish_reason for name in cancelled] == ["cancelled"] * len(cancelled)
        assert embedding(results, "next") == expected
        if "b" not in cancelled:
            assert embedding(results, "b") == expected
    engine.check()
    engine.close()


def test_who_is_cancelled_before_a_suspended_step_fails_is_not_in_its_way(
    backend: CpuBackend, tmp_path: Path
) -> None:
    catch_bus_errors()
    encoder = write_tiny(tmp_path / "e.gguf", ENCODERS["bert"])
    engine = engine_with(backend, encoder, **AT_ONCE)
    for name in ("a", "b"):
        engine.submit(text(name, 100))
    for _ in range(3):
        assert engine.step() == []
    engine.cancel("a")
    os.truncate(encoder, 4096)
    results = run_all(engine)
    assert results.last["a"].finish_reason == "cancelled"
    error = results.last["b"].error
    assert error is not None
    assert "cut short while it was in use" in error
    engine.close()


def test_all_the_time_of_suspended_steps_is_counted(backend: CpuBackend, tmp_path: Path) -> None:
    ticks = itertools.count()
    settings = EngineSettings(kv_limit_bytes=1 << 24, **AT_ONCE)
    engine = EngineCore(backend, settings, clock=lambda: float(next(ticks)))
    engine.attach_model("e", load_file(backend, write_tiny(tmp_path / "e.gguf", ENCODERS["bert"])))
    engine.submit(text("a", 100))
    num_steps = 0
    while not engine.step():
        num_steps += 1
    assert num_steps > 5
    assert engine.stats().metrics["e"].device_busy_s >= num_steps
    engine.close()


def test_a_model_that_sleeps_while_a_step_is_suspended_starts_anew(
    backend: CpuBackend, tmp_path: Path
) -> None:
    engine = engine_with(backend, write_tiny(tmp_path / "e.gguf", ENCODERS["bert"]), **AT_ONCE)
    engine.submit(text("first", 100))
    engine.step()
    engine.sleep_model("e")
    engine.submit(text("second", 100))
    results = run_all(engine)
    assert results.last["first"].error == "the model was unloaded"
    engine.submit(text("third", 100))
    assert embedding(results, "second") == embedding(run_all(engine), "third") != b""
    engine.close()


@pytest.mark.parametrize("name", POOLING)
def test_no_step_needs_more_than_is_counted(name: str, backend: CpuBackend, tmp_path: Path) -> None:
    device = load_file(backend, write_tiny(tmp_path / "e.gguf", ENCODERS[name]))
    assert isinstance(device, CpuModel)
    engine = EngineCore(backend, EngineSettings(most_text_tokens=256, max_batch=16))
    engine.attach_model("e", device)
    counted = device.info.scratch_bytes + device.text_bytes(256, 16)
    for i in range(40):
        engine.submit(text(str(i), 8 + i % 20, POOLING[name]))
    engine.submit(text("long", 256, POOLING[name]))
    run_all(engine)
    assert counted // 4 < device.buffer_bytes <= counted
    engine.close()


def test_what_a_long_text_needs_is_there_before_it_runs(backend: CpuBackend, tmp_path: Path) -> None:
    encoder = write_tiny(tmp_path / "e.gguf", ENCODERS["bert"])
    device = load_file(backend, encoder)
    more = device.text_bytes(500, 16) - device.text_bytes(64, 16)
    fixed = device.info.fixed_bytes + device.text_bytes(64, 16)
    device.close()
    settings = {"most_text_tokens": 64, "prefill_tokens": 64, "max_batch": 16}
    engine = engine_with(backend, encoder, memory_limit_bytes=fixed + more // 2, **settings)
    engine.submit(text("short", 64))
    engine.submit(text("long", 500))
    engine.submit(text("too long", 5000))
    results = run_all(engine)
    assert embedding(results, "short") != b""
    assert "more than the context" in str(results.last["too long"].error)
    error = results.last["long"].error
    assert error is not None
    assert error.startswith("a text of 500 tokens for e needs ")
    engine.close()
    other = write_tiny(tmp_path / "d.gguf", TINY["llama"])
    idle_bytes = load_file(backend, other).info.fixed_bytes
    limit = fixed + more + min(idle_bytes, more) // 2 + (1 << 16)
    engine = engine_with(backend, encoder, other, memory_limit_bytes=limit, **settings)
    engine.submit(text("long", 500))
    assert embedding(run_all(engine), "long") != b""
    engine.check()
    engine.close()
