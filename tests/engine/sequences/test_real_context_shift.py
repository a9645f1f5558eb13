"""With the real kernels, too, a sequence that outgrows its context gives what it gives alone.

Keys that moved were rounded again: to come to the same bits, a sequence that starts over must move the same
tokens by the same distances, in the same order, however they are spread over steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams
from tests.engine.toy import Results, run_all
from tests.forward import load_file
from tests.tiny import Tiny, write_tiny

pytestmark = pytest.mark.native

NUM_REQUESTS, LIMIT_BLOCKS = 8, 18


@pytest.fixture(scope="module", params=["f16", "q8_0", "q4_0"])
def backend(request: pytest.FixtureRequest) -> Iterator[CpuBackend]:
    backend = CpuBackend(num_threads=2, kv_type=request.param)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf", Tiny("llama", head_dim=32), "Q4_1")


def requests() -> list[Request]:
    """Of contexts and kept tokens on no border of blocks; pairs share half of their prompts."""
    rng = np.random.default_rng(5)
    shared = [rng.integers(0, 260, 24).tolist() for _ in range(NUM_REQUESTS // 2)]
    return [
        Request(
            id=str(i),
            model_id="model",
            prompt=shared[i // 2] + rng.integers(0, 260, 3 * i).tolist(),
            sampling=SamplingParams(temperature=1.0, seed=i, repeat_penalty=1.2),
            max_tokens=110,
            context_length=57 + i,
            shift=True,
            num_keep=5 * i,
        )
        for i in range(NUM_REQUESTS)
    ]


def generate(
    backend: CpuBackend, path: Path, requests: list[Request], **settings: int
) -> dict[str, list[int]]:
    engine = EngineCore(backend, EngineSettings(**settings))
    engine.attach_model("model", load_file(backend, path))
    for request in requests:
        engine.submit(request)
    tokens = run_all(engine).tokens
    engine.close()
    return tokens


@pytest.fixture(scope="module")
def alone(backend: CpuBackend, path: Path) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {}
    for request in requests():
        tokens |= generate(backend, path, [request])
    assert all(len(answer) == 110 for answer in tokens.values())
    return tokens


def test_together(backend: CpuBackend, path: Path, alone: dict[str, list[int]]) -> None:
    assert generate(backend, path, requests()) == alone


def test_in_small_chunks(backend: CpuBackend, path: Path, alone: dict[str, list[int]]) -> None:
    assert generate(backend, path, requests(), prefill_tokens=5, max_batch=3) == alone


def test_preempted(backend: CpuBackend, path: Path, alone: dict[str, list[int]]) -> None:
    model = load_file(backend, path)
    engine = EngineCore(
        backend, EngineSettings(kv_limit_bytes=LIMIT_BLOCKS * model.info.block_bytes, prefill_tokens=20)
    )
    engine.attach_model("model", model)
    *later, first, second = requests()
    results = Results()
    for request in (first, second):
        engine.submit(request)
    while not results.tokens.get(second.id):
        results.add(engine.step())
    for request in later:  # come before them, and take what they need
        engine.submit(msgspec.structs.replace(request, priority=1))
    tokens = run_all(engine, results).tokens
    num_preemptions = engine.stats().models[0].num_preemptions
    engine.close()
    assert num_preemptions > 0
    assert tokens == alone
