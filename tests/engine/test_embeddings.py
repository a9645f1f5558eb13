"""Embeddings are made of hidden states beside replies, whatever the chunks, and whatever the cache holds."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request
from puna.gguf.pooling import Pooling
from tests.engine.toy import (
    BLOCK_BYTES,
    HIDDEN_SIZE,
    STATE_BYTES,
    Results,
    ToyModel,
    expected_tokens,
    run_all,
    toy_engine,
    toy_logits,
    toy_request,
)
from tests.forward import load_file
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

PROMPT = [i * 7 % 89 for i in range(130)]
POOLINGS: list[Pooling] = ["mean", "cls", "last"]


def hidden(prompt: list[int]) -> NDArray[np.float64]:
    return toy_logits(np.array(prompt, np.int32))[:HIDDEN_SIZE].astype(np.float64)


def expected(prompt: list[int], pooling: Pooling) -> NDArray[np.float32]:
    ends = {"mean": range(1, len(prompt) + 1), "cls": [1], "last": [len(prompt)]}[pooling]
    states = [hidden(prompt[:end]) for end in ends]
    total = states[0]
    for state in states[1:]:
        total = total + state
    return (total / len(states)).astype(np.float32)


def embedding(results: Results, name: str) -> list[float]:
    last = results.last[name]
    assert last.finish_reason == "stop", last.error
    return np.frombuffer(last.embedding, np.float32).tolist()


def embed_request(name: str, prompt: list[int], pooling: Pooling, **fields: object) -> Request:
    return toy_request(name, prompt, None, pooling=pooling, **fields)


@pytest.mark.parametrize("prefill_tokens", [7, 48, 256])
@pytest.mark.parametrize("fields", [{}, {"cache_policy": "slots", "max_running": 2}], ids=["prefix", "slots"])
def test_beside_replies_in_chunks_and_again(prefill_tokens: int, fields: dict) -> None:
    engine = toy_engine(prefill_tokens=prefill_tokens, min_prefill_tokens=1, **fields)
    prompts = {"long": PROMPT, "other": [*PROMPT[:40], 3], "short": [5], "same": PROMPT}
    for turn in range(2):
        engine.submit(toy_request(f"reply {turn}", PROMPT[:50], 30))
        for (name, prompt), pooling in itertools.product(prompts.items(), POOLINGS):
            engine.submit(embed_request(f"{name} {pooling} {turn}", prompt, pooling))
        results = run_all(engine)
        assert results.tokens[f"reply {turn}"] == expected_tokens(PROMPT[:50], 30)
        for (name, prompt), pooling in itertools.product(prompts.items(), POOLINGS):
            found = embedding(results, f"{name} {pooling} {turn}")
            assert found == expected(prompt, pooling).tolist(), (name, pooling, turn)


@pytest.mark.parametrize(("pooling", "num_cached"), [("mean", 0), ("cls", 0), ("last", 129)])
def test_uses_what_is_cached_where_that_is_right(pooling: Pooling, num_cached: int) -> None:
    engine = toy_engine()
    engine.submit(toy_request("before", PROMPT, 1))
    run_all(engine)
    engine.submit(embed_request("e", PROMPT, pooling))
    results = run_all(engine)
    assert embedding(results, "e") == expected(PROMPT, pooling).tolist()
    assert results.last["e"].stats.cached_tokens == num_cached
    assert results.last["e"].stats.generated_tokens == 0


def test_others_use_its_kv() -> None:
    engine = toy_engine()
    engine.submit(embed_request("e", PROMPT, "mean"))
    run_all(engine)
    engine.submit(toy_request("reply", PROMPT, 3))
    results = run_all(engine)
    assert results.tokens["reply"] == expected_tokens(PROMPT, 3)
    assert results.last["reply"].stats.cached_tokens == len(PROMPT) - 1


def test_no_text_waits_for_another_s_beginning() -> None:
    """They could not use it."""
    model = ToyModel()
    engine = toy_engine(model)
    for i in range(8):
        engine.submit(embed_request(str(i), [*PROMPT[:20], i], "mean"))
    results = run_all(engine)
    assert len(model.steps) == 1
    assert all(embedding(results, str(i)) == expected([*PROMPT[:20], i], "mean").tolist() for i in range(8))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_preempted_in_the_middle(pooling: Pooling) -> None:
    """It goes on where its hidden states end, with what of its KV is still there."""
    model = ToyModel()
    engine = toy_engine(model, num_blocks=12, prefill_tokens=32)
    engine.submit(embed_request("e", PROMPT, pooling))
    results = Results()
    results.add(engine.step())
    results.add(engine.step())
    engine.submit(toy_request("urgent", [9] * 150, 2, priority=5))
    run_all(engine, results)
    assert engine.stats().metrics["toy"].num_preemptions == 1
    assert embedding(results, "e") == expected(PROMPT, pooling).tolist()
    assert results.tokens["urgent"] == expected_tokens([9] * 150, 2)


def test_with_recurrent_layers() -> None:
    """What is cached of them begins behind hidden states that are wanted, too."""
    model = ToyModel(state_bytes=STATE_BYTES)
    engine = toy_engine(model, num_blocks=2000, prefill_tokens=32)
    found: dict[str, set[tuple[float, ...]]] = {pooling: set() for pooling in POOLINGS}
    for turn in range(3):
        engine.submit(toy_request(f"reply {turn}", PROMPT, 5))
        for pooling in POOLINGS:
            engine.submit(embed_request(f"{pooling} {turn}", PROMPT, pooling))
        results = run_all(engine)
        assert results.tokens[f"reply {turn}"] == expected_tokens(PROMPT, 5, has_state=True)
        for pooling in POOLINGS:
            found[pooling].add(tuple(embedding(results, f"{pooling} {turn}")))
    assert all(len(embeddings) == 1 for embeddings in found.values())


def test_cancelled_gives_its_blocks_back() -> None:
    engine = toy_engine(prefill_tokens=16)
    engine.submit(embed_request("e", PROMPT, "mean"))
    engine.step()
    engine.cancel("e")
    results = run_all(engine)
    assert results.last["e"].finish_reason == "cancelled"
    assert engine.stats().models[0].used_kv_bytes == 0


def test_a_text_may_fill_the_context_and_no_more() -> None:
    engine = toy_engine(num_blocks=1000)
    engine.submit(embed_request("full", PROMPT, "last", context_length=len(PROMPT)))
    engine.submit(embed_request("longer", PROMPT, "last", context_length=len(PROMPT) - 1))
    engine.submit(embed_request("held", PROMPT, "last", grammar='start: "a"'))
    results = run_all(engine)
    assert embedding(results, "full") == expected(PROMPT, "last").tolist()
    assert results.last["longer"].finish_reason == results.last["held"].finish_reason == "error"


@pytest.mark.parametrize("name", ["smollm2", "gemma3", "gemma4-small", "qwen3moe", "qwen3next", "mamba2"])
def test_real_layers_give_the_same_bits_in_any_company(name: str, smollm2_path: Path, tmp_path: Path) -> None:
    path = smollm2_path if name == "smollm2" else write_tiny(tmp_path / "tiny.gguf", TINY[name], "Q8_0")
    prompts = [[i * k % 250 + 1 for i in range(n)] for k, n in ((3, 90), (7, 33), (11, 1))]
    requests = [
        Request(id=f"{i} {pooling}", model_id="m", prompt=prompt, pooling=pooling)
        for i, prompt in enumerate(prompts)
        for pooling in POOLINGS
    ]
    backend = CpuBackend(num_threads=2)
    alone: dict[str, bytes] = {}
    for one in requests:
        alone |= _embeddings(backend, path, [one])
    reply = Request(id="reply", model_id="m", prompt=prompts[0], max_tokens=20)
    for prefill_tokens in (16, 128):
        assert _embeddings(backend, path, [reply, *requests], prefill_tokens) == alone
    backend.close()


def _embeddings(
    backend: CpuBackend, path: Path, requests: list[Request], prefill_tokens: int = 256
) -> dict[str, bytes]:
    model = load_file(backend, path)
    limit_bytes = 64 * model.info.block_bytes + 64 * model.info.state_bytes + BLOCK_BYTES
    engine = EngineCore(
        backend,
        EngineSettings(kv_limit_bytes=limit_bytes, prefill_tokens=prefill_tokens, min_prefill_tokens=16),
    )
    engine.attach_model("m", model)
    for one in requests:
        engine.submit(one)
    results = run_all(engine)
    engine.close()
    assert all(last.error is None for last in results.last.values())
    return {name: last.embedding for name, last in results.last.items() if last.embedding}
