"""Far into a context all still agrees with llama.cpp: rotation, block tables, segments, stored types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna.backends.cpu import CpuBackend
from tests.forward import all_logits, load_file, log_softmax
from tests.oracle.llamacpp import LlamaCpp
from tests.tiny import TINY, Tiny, write_tiny

pytestmark = pytest.mark.oracle

CONTEXT = 4200
VOCAB = 270
# Around the borders of blocks (16 positions), segments (256) and chunks of the prompt, and at the end.
POSITIONS = [255, 256, 257, 511, 512, 1023, 1024, 2047, 2048, 2049, 3000, 4094, 4095, 4096, 4097, 4190]


@pytest.fixture(scope="module")
def tokens() -> list[int]:
    rng = np.random.default_rng(11)
    return rng.integers(0, VOCAB - 3, POSITIONS[-1] + 1).tolist()


def our_logprobs(path: Path, tokens: list[int], kv_type: str, chunk: int) -> NDArray[np.float64]:
    backend = CpuBackend(num_threads=2, kv_type=kv_type)
    model = load_file(backend, path)
    logits = all_logits(model, tokens, chunk)
    model.close()
    backend.close()
    return log_softmax(logits[POSITIONS])


def their_logprobs(path: Path, tokens: list[int], kv_type: str) -> NDArray[np.float32]:
    with LlamaCpp(path, context=CONTEXT, kv_type=kv_type) as oracle:
        return np.stack([oracle.logprobs_at(tokens[: p + 1], VOCAB) for p in POSITIONS])


@pytest.mark.parametrize("name", ["llama", "qwen3", "llama-yarn", "gemma3", "qwen35", "mamba2"])
def test_four_thousand_positions(name: str, tmp_path: Path, tokens: list[int]) -> None:
    tiny = replace(TINY[name], context=CONTEXT)
    if "attention.sliding_window" in tiny.metadata:
        tiny = replace(tiny, metadata=tiny.metadata | {"attention.sliding_window": 1000})
    path = write_tiny(tmp_path / "tiny.gguf", tiny)
    ours = our_logprobs(path, tokens, "f32", chunk=500)
    theirs = their_logprobs(path, tokens, "f32")
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_token_by_token(tmp_path: Path, tokens: list[int]) -> None:
    """Thousands of steps of one token end where the prompt in one piece does, bit for bit."""
    path = write_tiny(tmp_path / "tiny.gguf", replace(TINY["llama"], context=CONTEXT))
    np.testing.assert_array_equal(
        our_logprobs(path, tokens, "f16", chunk=1), our_logprobs(path, tokens, "f16", chunk=512)
    )


@pytest.mark.parametrize(("kv_type", "largest"), [("f16", 0.002), ("q8_0", 0.1), ("q4_0", 1.0)])
def test_stored_types(kv_type: str, largest: float, tmp_path: Path, tokens: list[int]) -> None:
    """Rounding keys and values costs no more accuracy than it costs llama.cpp."""
    path = write_tiny(tmp_path / "tiny.gguf", Tiny("llama", head_dim=64, heads=4, context=CONTEXT))
    exact = our_logprobs(path, tokens, "f32", chunk=500)
    our_error = np.abs(our_logprobs(path, tokens, kv_type, chunk=500) - exact)
    their_error = np.abs(their_logprobs(path, tokens, kv_type) - exact)
    assert our_error.mean() <= 1.1 * their_error.mean()
    assert our_error.max() < largest


def test_behind_the_first_chunk(tmp_path: Path) -> None:
    """Of Llama 4, whose queries also grow from there on."""
    tiny = replace(TINY["llama4"], width=64, heads=4, layers=4, context=8500)
    path = write_tiny(tmp_path / "tiny.gguf", tiny)
    tokens = np.random.default_rng(12).integers(0, VOCAB - 3, 8301).tolist()
    positions = [8190, 8191, 8192, 8193, 8300]
    backend = CpuBackend(num_threads=2, kv_type="f32")
    ours = log_softmax(all_logits(load_file(backend, path), tokens, 500)[positions])
    with LlamaCpp(path, context=8500, kv_type="f32") as oracle:
        theirs = np.stack([oracle.logprobs_at(tokens[: p + 1], VOCAB) for p in positions])
    np.testing.assert_allclose(ours, theirs, atol=1e-3)
    backend.close()
