"""The benchmark's model files: types as of llama-quantize, values close, readable by both engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

import puna
from benchmarks.synthetic.gpt_oss import GPT_OSS_20B
from benchmarks.synthetic.qwen3 import QWEN3_4B, QWEN3_30B_A3B
from benchmarks.synthetic.qwen35 import QWEN35_4B
from benchmarks.synthetic.writing import write_model
from benchmarks.weights.k_quants import quantize_q4_k, quantize_q6_k
from benchmarks.weights.recipes import Shape, type_of
from benchmarks.weights.variants import write_variant
from puna.gguf import GgufFile
from puna.models.architectures import ARCHITECTURES
from tests.oracle.llamacpp import LlamaCpp
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.oracle

K_QUANTS = [("Q4_K", quantize_q4_k, 0.1), ("Q6_K", quantize_q6_k, 0.03)]
PROMPT = "the thin man on the other inn"


@pytest.mark.parametrize(("weight_type", "quantize", "tolerance"), K_QUANTS)
@pytest.mark.parametrize("mean", [0.0, 0.5, -2.0])
def test_quantized_values_are_close(weight_type, quantize, tolerance, mean):
    x = np.random.default_rng(1).normal(mean, 1.0, (5, 768)).astype(np.float32)
    back = gguf.quants.dequantize(quantize(x), gguf.GGMLQuantizationType[weight_type])
    assert np.sqrt(((back - x) ** 2).mean() / (x**2).mean()) < tolerance


@pytest.mark.parametrize(("weight_type", "quantize", "tolerance"), K_QUANTS)
def test_zeros_stay_zeros_and_outliers_do_not_overflow(weight_type, quantize, tolerance):
    x = np.zeros((2, 256), np.float32)
    x[1, 7], x[1, 200] = 1000.0, -1000.0
    back = gguf.quants.dequantize(quantize(x), gguf.GGMLQuantizationType[weight_type])
    assert not back[0].any()
    np.testing.assert_allclose(back[1], x[1], atol=1000 * tolerance)


def test_types_are_those_of_llama_quantize():
    """As `llama-quantize ... Q4_K_M` reports them for SmolLM2 (rows of 576) and for a model of 36 layers."""
    narrow = Shape("blk.0.attn_v.weight", 192, 576, 0, 30, False)
    assert [type_of(replace(narrow, layer=i), "Q4_K_M") for i in (0, 2, 3, 5)] == [
        "Q8_0",
        "Q8_0",
        "Q5_0",
        "Q8_0",
    ]
    down = Shape("blk.0.ffn_down.weight", 576, 1536, 0, 30, False)
    precise = [i for i in range(30) if type_of(replace(down, layer=i), "Q4_K_M") == "Q6_K"]
    assert precise == [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 26, 27, 28, 29]
    output = Shape("token_embd.weight", 49152, 576, -1, 30, True)
    assert [type_of(output, m) for m in ("Q4_K_M", "Q4_0", "Q8_0", "F16")] == ["Q8_0", "Q8_0", "Q8_0", "F16"]
    assert type_of(replace(output, cols=2560), "Q4_0") == "Q6_K"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = replace(TINY["llama"], width=256, heads=4, head_dim=64, ffn=512, layers=3)
    return write_tiny(tmp_path_factory.mktemp("variants") / "f32.gguf", tiny)


@pytest.mark.parametrize("mixture", ["F16", "Q4_0", "Q8_0", "Q4_K_M"])
def test_a_variant_says_what_the_original_says(original, tmp_path, mixture):
    path = tmp_path / "variant.gguf"
    write_variant(original, path, mixture)
    with GgufFile(original) as a, GgufFile(path) as b:
        assert {*b.metadata} - {"general.file_type"} == {*a.metadata}
        assert a.metadata["tokenizer.ggml.merges"] == b.metadata["tokenizer.ggml.merges"]
        for name in a.tensors:
            x, y = a.dequantize(name), b.dequantize(name)
            assert np.sqrt(((x - y) ** 2).mean() / (x**2).mean()) < 0.12
    both_engines_agree(path)


SIZES = {"width": 256, "ffn": 256, "heads": 4, "kv_heads": 2, "head_dim": 64, "vocabulary": 1500}
SMALL = [
    replace(QWEN3_4B, layers=2, **SIZES),
    replace(QWEN3_30B_A3B, layers=2, experts=8, experts_used=2, **SIZES),
    replace(GPT_OSS_20B, layers=2, experts=8, experts_used=2, **SIZES),
    replace(QWEN35_4B, layers=4, delta_key_heads=2, delta_value_heads=4, delta_dim=64, **SIZES),
]


@pytest.mark.parametrize("small", SMALL, ids=lambda small: small.model().architecture)
def test_synthetic_files_are_read_by_both_engines(small, tmp_path):
    path = tmp_path / "synthetic.gguf"
    write_model(small.model(), path)
    with GgufFile(path) as file:
        for name, tensor in file.tensors.items():
            if tensor.type != "F32":
                deviation = file.dequantize(name).std() * np.sqrt(tensor.shape[0])
                assert 0.5 < deviation < 2, name
    if small.model().architecture in ARCHITECTURES:
        both_engines_agree(path)
    else:
        with LlamaCpp(path) as oracle:
            assert np.isfinite([*oracle.next_logprobs(oracle.tokenize(PROMPT), 5).values()]).all()


def both_engines_agree(path: Path) -> None:
    """On the tokens of a prompt, and on what probably follows it."""
    with puna.LLM(path, num_threads=1, kv_limit_bytes=32 << 20) as llm, LlamaCpp(path) as oracle:
        prompt = llm.engine.tokenizer.encode_prompt(PROMPT)
        assert prompt == oracle.tokenize(PROMPT)
        sampling = puna.SamplingParams(temperature=0, num_logprobs=0)
        (ours,) = llm.generate(PROMPT, max_tokens=1, sampling=sampling)[0].logprobs
        theirs = oracle.next_logprobs(prompt, 5)  # random weights have no clear favourite
        assert ours.logprob == pytest.approx(theirs[ours.token], abs=0.3)
