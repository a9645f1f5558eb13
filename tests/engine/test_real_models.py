"""With the real kernels, too, a request gives the same tokens alone, in a crowd, in chunks, and preempted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams
from tests.engine.toy import run_all
from tests.forward import load_file
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

MODELS = {"f32": ("llama", "F32"), "q4_1": ("qwen3", "Q4_1")}
GREEDY = SamplingParams(temperature=0)
DRAWN = SamplingParams(temperature=1.0, seed=7)
PENALIZED = SamplingParams(temperature=0.3, seed=8, repeat_penalty=1.2, frequency_penalty=0.2)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("models")
    return {
        name: write_tiny(directory / f"{name}.gguf", TINY[architecture], weight_type)
        for name, (architecture, weight_type) in MODELS.items()
    }


@pytest.fixture(scope="module")
def backend() -> Iterator[CpuBackend]:
    backend = CpuBackend(num_threads=2)
    yield backend
    backend.close()


def requests(num: int) -> list[Request]:
    rng = np.random.default_rng(3)
    return [
        Request(
            id=f"{model_id}{i}",
            model_id=model_id,
            prompt=rng.integers(0, 260, rng.integers(1, 150)).tolist(),
            sampling=GREEDY if i % 2 else DRAWN,
            max_tokens=40,
        )
        for i in range(num)
        for model_id in MODELS
    ]


def generate(
    backend: CpuBackend, paths: dict[str, Path], requests: list[Request], settings: EngineSettings
) -> tuple[dict[str, list[int]], int]:
    """(tokens by request, number of preemptions)"""
    # Every step seems to take as long, so drafts are verified wherever there are any.
    ticks = count(step=0.001)
    engine = EngineCore(backend, settings, lambda: next(ticks))
    for model_id, path in paths.items():
        engine.attach_model(model_id, load_file(backend, path))
    for request in requests:
        engine.submit(request)
    results = run_all(engine)
    num_preemptions = sum(model.num_preemptions for model in engine.stats().models)
    engine.close()
    return results.tokens, num_preemptions


@pytest.fixture(scope="module")
def alone(backend: CpuBackend, paths: dict[str, Path]) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {}
    for request in requests(16):
        tokens |= generate(backend, paths, [request], EngineSettings())[0]
    return tokens


def test_32_requests_to_two_models_give_what_they_give_alone(
    backend: CpuBackend, paths: dict[str, Path], alone: dict[str, list[int]]
):
    tokens, _ = generate(backend, paths, requests(16), EngineSettings())
    assert all(len(answer) == 40 for answer in tokens.values())
    assert tokens == alone


def test_chunk_sizes_do_not_matter(backend: CpuBackend, paths: dict[str, Path], alone: dict[str, list[int]]):
    settings = EngineSettings(prefill_tokens=37, min_prefill_tokens=5, unnoticed_s=0.0, max_running=3)
    assert generate(backend, paths, requests(16), settings)[0] == alone


def test_memory_for_a_few_is_enough_for_all(
    backend: CpuBackend, paths: dict[str, Path], alone: dict[str, list[int]]
):
    largest_block = max(load_file(backend, path).info.block_bytes for path in paths.values())
    settings = EngineSettings(kv_limit_bytes=12 * largest_block)
    tokens, num_preemptions = generate(backend, paths, requests(16), settings)
    assert num_preemptions > 0
    assert tokens == alone


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN, PENALIZED], ids=["greedy", "drawn", "penalized"])
def test_drafts_change_no_bit(backend: CpuBackend, paths: dict[str, Path], sampling: SamplingParams):
    ticks = count(step=0.001)
    engine = EngineCore(backend, EngineSettings(), lambda: next(ticks))
    for model_id, path in paths.items():
        engine.attach_model(model_id, load_file(backend, path))
    prompt = np.random.default_rng(5).integers(0, 260, 12).tolist() * 4
    sampling = structs.replace(sampling, num_logprobs=2)
    runs = []
    for name, num_draft, draft_model_id in (
        ("plain", 0, None),
        ("text", None, None),
        ("model", None, "q4_1"),
    ):
        engine.submit(
            Request(
                id=name,
                model_id="f32",
                prompt=prompt,
                sampling=sampling,
                max_tokens=60,
                num_draft=num_draft,
                draft_model_id=draft_model_id,
            )
        )
        outputs = []
        while engine.has_work:
            outputs += engine.step()
        logprobs = [logprob for output in outputs for logprob in output.logprobs or []]
        runs.append((logprobs, outputs[-1].stats))
    engine.close()
    (plain, none), (drafted, text), (by_model, model) = runs
    assert plain == drafted == by_model
    assert len(plain) == 60
    assert none.drafted_tokens == 0 < min(text.drafted_tokens, model.drafted_tokens)
