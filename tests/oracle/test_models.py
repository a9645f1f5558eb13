"""Every architecture gives llama.cpp's log-probabilities, all along long prompts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna.backends.cpu import CpuBackend
from tests import ggml
from tests.forward import all_logits, load_file, log_softmax
from tests.kernels.weights import random_weight, values
from tests.oracle.llamacpp import LlamaCpp
from tests.tiny import TINY, Quantize, Tiny, write_tiny

pytestmark = pytest.mark.oracle

NUM_PROMPTS = 2
PROMPT_TOKENS = 200
STRIDE = 4
VOCAB = 270


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    rng = np.random.default_rng(7)
    return [rng.integers(0, VOCAB - 3, PROMPT_TOKENS).tolist() for _ in range(NUM_PROMPTS)]


def compare(path: Path, prompts: list[list[int]], *, kv_type: str, isa: str = "auto") -> tuple[float, float]:
    """(share of positions whose likeliest token agrees, largest difference of a log-probability)"""
    backend = CpuBackend(num_threads=2, isa=isa, kv_type=kv_type)
    model = load_file(backend, path)
    agree, difference = [], 0.0
    with LlamaCpp(path, kv_type=kv_type) as oracle:
        for i, prompt in enumerate(prompts):
            ours = log_softmax(all_logits(model, prompt, chunk=64))
            for position in range(i % STRIDE, len(prompt), STRIDE):
                theirs = oracle.logprobs_at(prompt[: position + 1], VOCAB)
                agree.append(int(ours[position].argmax()) == int(theirs.argmax()))
                difference = max(difference, float(np.abs(ours[position] - theirs).max()))
    model.close()
    backend.close()
    return float(np.mean(agree)), difference


@pytest.mark.parametrize("name", TINY)
def test_f32_weights_agree_everywhere(name: str, tmp_path: Path, prompts: list[list[int]]) -> None:
    agreement, difference = compare(write_tiny(tmp_path / "tiny.gguf", TINY[name]), prompts, kv_type="f32")
    assert agreement == 1.0
    assert difference < 1e-3


@pytest.mark.parametrize("name", ["qwen3", "gemma2"])
def test_portable_kernels_agree_too(name: str, tmp_path: Path, prompts: list[list[int]]) -> None:
    agreement, difference = compare(
        write_tiny(tmp_path / "tiny.gguf", TINY[name]), prompts[:1], kv_type="f32", isa="portable"
    )
    assert agreement == 1.0
    assert difference < 1e-3


@pytest.mark.parametrize(("name", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_the_largest_of_gemma_scale_scores_in_their_own_way(
    name: str, layers: int, tmp_path: Path, prompts: list[list[int]]
) -> None:
    tiny = replace(TINY[name], layers=layers, width=48, heads=3, kv_heads=1, ffn=64)
    prompt = prompts[0][:60]
    agreement, difference = compare(write_tiny(tmp_path / "tiny.gguf", tiny), [prompt], kv_type="f32")
    assert agreement == 1.0
    assert difference < 1e-3


QUANTIZED = [
    *[("llama", name) for name in ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1")],
    ("gemma3", "Q4_0"),
    ("gpt-oss", "MXFP4"),
    ("lfm2", "Q4_0"),
    ("mamba2", "Q5_0"),
    ("qwen3next", "Q4_1"),
    *[(name, "Q8_0") for name in TINY],
]


@pytest.mark.parametrize(("name", "weight_type"), QUANTIZED)
def test_quantized_weights_agree_almost_everywhere(
    name: str, weight_type: str, tmp_path: Path, prompts: list[list[int]]
) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TINY[name], weight_type)
    agreement, _ = compare(path, prompts, kv_type="f16")
    assert agreement >= 0.98


def like(weight: NDArray[np.float32], weight_type: str) -> NDArray[np.uint8]:
    """Random blocks with values of the weight's size; quantizing to these types takes seconds to begin."""
    rows, cols = weight.shape
    size = values(weight_type, random_weight(weight_type, rows, cols)).std()
    return random_weight(weight_type, rows, cols, seed=rows, largest=0.02 * float(weight.std() / size))


@pytest.mark.parametrize(
    ("weight_type", "quantize"),
    [(name, ggml.quantize) for name in ("IQ3_XXS", "IQ3_S", "TQ1_0", "TQ2_0", "NVFP4", "Q1_0")]
    + [(name, like) for name in ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S")],
)
def test_weights_of_few_bits_agree_almost_everywhere(
    weight_type: str, quantize: Quantize, tmp_path: Path, prompts: list[list[int]]
) -> None:
    tiny = Tiny("llama", width=256, heads=16, ffn=512)
    path = write_tiny(tmp_path / "tiny.gguf", tiny, weight_type, quantize=quantize)
    agreement, _ = compare(path, prompts, kv_type="f16")
    assert agreement >= 0.9  # of few positions; where it differs, rounding of activations decides
