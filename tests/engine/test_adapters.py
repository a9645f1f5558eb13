"""LoRA adapters in the engine: whose KV is whose, what memory they take, how they come and go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from puna._native import catch_bus_errors
from puna.backends.base import ModelSource
from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams, StepOutput
from puna.engine.caching.namespaces import Namespaces
from puna.engine.memory.load_errors import ModelDoesNotFit
from tests.adapters import write_adapter
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

PROMPT = [(7 * i) % 260 for i in range(40)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model, and of adapters a and b for it."""
    directory = tmp_path_factory.mktemp("adapters")
    model = write_tiny(directory / "model", TINY["qwen3"])
    for seed, name in enumerate("ab"):
        write_adapter(directory / name, model, seed=seed)
    return directory


@pytest.fixture
def engine(files: Path) -> Iterator[EngineCore]:
    backend = CpuBackend(num_threads=1)
    engine = EngineCore(backend, EngineSettings(kv_limit_bytes=1 << 24, memory_limit_bytes=1 << 26))
    with ModelSource.open(files / "model") as source:
        engine.load_model("m", source)
    yield engine
    engine.check()
    engine.close()
    backend.close()


def load(engine: EngineCore, files: Path, name: str) -> int:
    with ModelSource.open(files / name) as source:
        return engine.adapters.load("m", name, source)


def ask(engine: EngineCore, adapter: str = "", **fields: object) -> None:
    values = {
        "id": adapter,
        "prompt": PROMPT,
        "max_tokens": 6,
        "sampling": SamplingParams(temperature=0, num_logprobs=0),
    }
    engine.submit(Request(model_id="m", adapter=adapter, **{**values, **fields}))  # type: ignore[arg-type]


def run(engine: EngineCore, adapter: str = "") -> tuple[list[float], int]:
    """(log-probabilities of the reply, tokens of the prompt that were cached)"""
    ask(engine, adapter)
    found, outputs = list[float](), list[StepOutput]()
    while engine.has_work:
        outputs += engine.step()
    for output in outputs:
        assert output.error is None
        found += [logprob.logprob for logprob in output.logprobs or []]
    stats = outputs[-1].stats
    assert stats is not None
    return found, stats.cached_tokens


def test_no_adapter_finds_what_another_has_computed(engine: EngineCore, files: Path) -> None:
    load(engine, files, "a"), load(engine, files, "b")
    first = {name: run(engine, name) for name in ("", "a", "b")}
    assert {cached for _, cached in first.values()} == {0}
    assert len({tuple(found) for found, _ in first.values()}) == 3
    for name, (found, _) in first.items():
        assert run(engine, name) == (found, len(PROMPT) - 1)


def test_namespaces_of_salts_and_adapters_differ() -> None:
    names = Namespaces(None)
    pairs = [("", ""), ("a", ""), ("", "a"), ("a", "b"), ("b", "a"), (" a", ""), ("a b", ""), ("", "a b")]
    assert len({names.of(salt, adapter) for salt, adapter in pairs}) == len(pairs)


def test_an_adapter_is_counted_while_its_model_is_awake(engine: EngineCore, files: Path) -> None:
    budget = engine.memory.budget
    before, expected = budget.weight_bytes, run(engine)
    num_bytes = load(engine, files, "a")
    adapted = run(engine, "a")
    assert num_bytes >= (files / "a").stat().st_size // 2
    assert budget.weight_bytes == before + num_bytes
    engine.sleep_model("m")
    assert budget.weight_bytes == 0
    load(engine, files, "b")
    engine.adapters.unload("m", "b")
    assert run(engine, "a")[0] == adapted[0]
    assert budget.weight_bytes == before + num_bytes
    engine.adapters.unload("m", "a")
    assert budget.weight_bytes == before
    assert run(engine)[0] == expected[0]


def test_an_adapter_for_which_there_is_no_memory_is_refused(engine: EngineCore, files: Path) -> None:
    engine.set_limits(memory_limit_bytes=engine.memory.budget.weight_bytes + (1 << 17))
    with pytest.raises(ModelDoesNotFit, match=r"an adapter of m needs .* more, the memory limit is"):
        load(engine, files, "a")
    assert run(engine)[0]


def test_requests_end_with_their_adapter(engine: EngineCore, files: Path) -> None:
    load(engine, files, "a")
    ask(engine), ask(engine, "a"), ask(engine, "b")
    outputs = engine.step()
    engine.adapters.unload("m", "a")
    while engine.has_work:
        outputs += engine.step()
    errors = {output.request_id: output.error for output in outputs if output.finish_reason}
    assert errors == {"": None, "a": "the adapter was unloaded", "b": "adapter b is not loaded"}


def test_an_adapter_that_is_cut_short_fails_its_own_requests_alone(
    engine: EngineCore, tmp_path: Path, files: Path
) -> None:
    catch_bus_errors()
    (tmp_path / "a").write_bytes((files / "a").read_bytes())
    expected = run(engine)[0]
    load(engine, tmp_path, "a"), load(engine, files, "b")
    os.truncate(tmp_path / "a", 4096)
    ask(engine), ask(engine, "a"), ask(engine, "b")
    outputs = list[StepOutput]()
    while engine.has_work:
        outputs += engine.step()
    errors = {output.request_id: output.error for output in outputs if output.finish_reason}
    assert errors["a"] == "the adapter cannot be used: the model's file was cut short while it was in use"
    assert errors[""] is errors["b"] is None
    found = [drawn.logprob for o in outputs if o.request_id == "" for drawn in o.logprobs or []]
    assert found == expected
    engine.adapters.unload("m", "a")
