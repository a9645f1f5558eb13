"""Of every architecture: a request's reply does not depend on who else is there, on pieces, or on the cache.

The deeper tests of the same, of models with all kinds of layers, are in test_invariance.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams
from puna.models import ARCHITECTURES
from tests.forward import load_file
from tests.tiny import ENCODERS, TINY, write_tiny

pytestmark = pytest.mark.native

NUM_TOKENS = 8
LENGTHS = (90, 41, 17)
VOCAB = 267

Answer = list[tuple[int, float]]
"""(token, log-probability) one after the other."""


@pytest.fixture(scope="module")
def backend() -> Iterator[CpuBackend]:
    backend = CpuBackend(num_threads=2)
    yield backend
    backend.close()


def requests() -> list[Request]:
    rng = np.random.default_rng(3)
    sampling = SamplingParams(temperature=0, num_logprobs=1)
    return [
        Request(
            id=str(length),
            model_id="m",
            prompt=rng.integers(0, VOCAB, length).tolist(),
            sampling=sampling,
            max_tokens=NUM_TOKENS,
            boundaries=[length - 1],
        )
        for length in LENGTHS
    ]


def run(core: EngineCore, *requests: Request) -> dict[str, Answer]:
    answers: dict[str, Answer] = {request.id: [] for request in requests}
    for request in requests:
        core.submit(request)
    while core.has_work:
        for output in core.step():
            assert output.error is None
            answers[output.request_id] += [(p.token, p.logprob) for p in output.logprobs or []]
    return answers


def open_engine(backend: CpuBackend, path: Path, **settings: int) -> EngineCore:
    model = load_file(backend, path)
    limit_bytes = 100 * model.info.block_bytes + 40 * model.info.state_bytes
    core = EngineCore(backend, EngineSettings(kv_limit_bytes=limit_bytes, state_key=bytes(32), **settings))
    core.attach_model("m", model)
    return core


def test_each_has_a_tiny_model() -> None:
    known = {tiny.architecture for tiny in (*TINY.values(), *ENCODERS.values())}
    assert known == set(ARCHITECTURES)


@pytest.mark.parametrize("name", TINY)
def test_alone_batched_in_pieces_and_continued(name: str, backend: CpuBackend, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TINY[name], "Q8_0")
    core = open_engine(backend, path)
    alone: dict[str, Answer] = {}
    for request in requests():
        alone |= run(core, msgspec.structs.replace(request, cache_prompt=False, num_draft=0))
    core.trim_kv()
    assert run(core, *requests()) == alone, "batched"
    cached = core.stats().metrics["m"].cached_tokens
    assert run(core, *requests()) == alone, "continued from cached blocks"
    assert core.stats().metrics["m"].cached_tokens - cached >= sum(LENGTHS) - len(LENGTHS)
    core.close()
    core = open_engine(backend, path, prefill_tokens=7, min_prefill_tokens=3, max_batch=2)
    assert run(core, *requests()) == alone, "in pieces"
    core.close()
