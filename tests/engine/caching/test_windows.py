"""What a sequence holds where most layers see a window: of those little more than the window reaches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams
from puna.kv.blocks import blocks_for
from tests.engine.toy import ToyModel, Windows, expected_tokens, run_all, toy_engine, toy_request
from tests.forward import load_file
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

# Gemma 3 270M in small: 15 of 18 layers have a window, of 32 tokens for 1,000 as there of 512 for 16,000.
LAYERS, WINDOW, NUM_TOKENS = 18, 32, 1000


PROMPT = np.random.default_rng(1).integers(0, 260, NUM_TOKENS).tolist()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = TINY["gemma3"]
    tiny = replace(tiny, layers=LAYERS, metadata=tiny.metadata | {"attention.sliding_window": WINDOW})
    return write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf", tiny)


def answer(path: Path, settings: EngineSettings) -> tuple[list[int], list[int], int]:
    """To the prompt; bytes that were held while it grew, and of a block of all layers."""
    backend = CpuBackend(num_threads=2)
    engine = EngineCore(backend, settings)
    model = load_file(backend, path)
    engine.attach_model("m", model)
    sampling = SamplingParams(temperature=0)
    engine.submit(Request(id="r", model_id="m", prompt=PROMPT, sampling=sampling, max_tokens=40, num_draft=0))
    held: list[int] = []
    tokens: list[int] = []
    while engine.has_work:
        outputs = engine.step()
        assert [output.error for output in outputs if output.error] == []
        tokens += [token for output in outputs for token in output.tokens]
        if tokens and engine.has_work:
            held.append(engine.stats().models[0].used_kv_bytes)
    engine.close()
    backend.close()
    return tokens, held, model.info.block_bytes


def test_a_long_sequence_holds_a_quarter_of_what_it_would_without_windows(path: Path):
    tokens, held, block_bytes = answer(path, EngineSettings())
    assert len(held) > 20
    assert max(held) <= blocks_for(NUM_TOKENS) * block_bytes / 4
    # And where there is no memory for more, a prompt is computed in chunks whose windows find room.
    settings = EngineSettings(kv_limit_bytes=max(held) + 2 * block_bytes, prefill_tokens=512)
    assert answer(path, settings)[0] == tokens


@pytest.mark.parametrize(("windows", "num_blocks"), [((24,), 8), ((None, 24), 50)])
def test_no_stream_makes_way_for_what_a_long_chunk_needs_beyond_its_windows(
    windows: Windows, num_blocks: int
):
    model = ToyModel(windows=windows)
    engine = toy_engine(model, num_blocks=num_blocks, min_prefill_tokens=256)
    wanted = {}
    for name, prompt, count in (("stream", [1] * 10, 100), ("long", [2] * 400, 10)):
        engine.submit(toy_request(name, prompt, count, num_draft=0))
        engine.step()
        wanted[name] = expected_tokens(prompt, count, windows=windows)
    results = run_all(engine)
    assert results.tokens["long"] == wanted["long"]
    assert results.tokens["stream"] == wanted["stream"][-len(results.tokens["stream"]) :]
    assert engine.stats().models[0].num_preemptions == 0
    assert max(map(len, model.steps)) == 2, "they take turns"


@pytest.mark.parametrize("num_blocks", [30, 60, 100])
def test_extents_of_several_groups_that_are_coarse_for_what_there_is(num_blocks: int):
    """A sequence gets as long as memory lets it, and never waits for finer ones that there are not."""
    windows = (None, 33, 7)
    model = ToyModel(windows=windows, extent_blocks=4, context_length=5000)
    engine = toy_engine(model, num_blocks=num_blocks)
    engine.submit(toy_request("r", [1] * 10, None))
    results = run_all(engine)
    assert results.last["r"].finish_reason == "length"
    tokens = results.tokens["r"]
    assert len(tokens) > 16 * (num_blocks - 40)
    assert tokens == expected_tokens([1] * 10, len(tokens), windows=windows)


def test_a_prompt_far_longer_than_memory_runs_where_all_layers_have_windows():
    windows = (40, 3)
    model = ToyModel(windows=windows, context_length=5000)
    engine = toy_engine(model, num_blocks=8)
    prompt = [i % 89 for i in range(3000)]
    for name in "ab":
        engine.submit(toy_request(name, prompt, 5))
    results = run_all(engine)
    wanted = expected_tokens(prompt, 5, windows=windows)
    assert results.tokens == {"a": wanted, "b": wanted}
