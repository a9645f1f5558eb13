"""LoRA adapters give llama.cpp's log-probabilities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from puna.backends.cpu import CpuBackend
from tests.adapters import linear_tensors, write_adapter
from tests.forward import all_logits, load_adapter, load_file, log_softmax
from tests.oracle.llamacpp import LlamaCpp
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.oracle

PROMPT = np.random.default_rng(7).integers(0, 267, 60).tolist()
POSITIONS = range(9, 60, 10)
VOCAB = 270


def compare(model_path: Path, adapter_path: Path, isa: str = "auto") -> tuple[float, float]:
    """(largest difference of a log-probability from llama.cpp's, mean one from the model's without it)"""
    backend = CpuBackend(num_threads=2, isa=isa, kv_type="f32")
    model = load_file(backend, model_path)
    ours = log_softmax(all_logits(model, PROMPT, 16, load_adapter(model, adapter_path)))
    plain = log_softmax(all_logits(model, PROMPT, 16))
    model.close()
    backend.close()
    with LlamaCpp(model_path, kv_type="f32", adapter=adapter_path) as oracle:
        theirs = {position: oracle.logprobs_at(PROMPT[: position + 1], VOCAB) for position in POSITIONS}
    difference = max(float(np.abs(ours[position] - found).max()) for position, found in theirs.items())
    return difference, float(np.abs(ours - plain).mean())


@pytest.mark.parametrize(
    "name",
    ["llama-untied", "gemma2", "gemma3", "qwen2", "qwen3", "qwen3moe", "qwen35", "lfm2", "granitehybrid"],
)
def test_adapters_of_all_linear_matrices(name: str, tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "tiny.gguf", TINY[name])
    difference, effect = compare(model, write_adapter(tmp_path / "adapter.gguf", model))
    assert difference < 1e-3
    assert effect > 0.05


@pytest.mark.parametrize(
    ("weight_type", "rank", "isa", "tolerance"),
    [
        ("F32", 1, "portable", 1e-3),
        ("F16", 16, "auto", 1e-2),  # llama.cpp rounds activations to half precision, too
        ("BF16", 37, "auto", 1e-1),
        ("Q8_0", 32, "auto", 1e-1),  # and here to bytes
    ],
)
def test_types_and_ranks(weight_type: str, rank: int, isa: str, tolerance: float, tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "tiny.gguf", replace(TINY["llama-untied"], ffn=1184))
    adapter = write_adapter(tmp_path / "adapter.gguf", model, rank=rank, weight_type=weight_type)
    difference, effect = compare(model, adapter, isa)
    assert difference < tolerance
    assert effect > 0.05


def test_embeddings_and_an_output_matrix_and_no_alpha(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "tiny.gguf", TINY["llama-untied"])
    tensors = ["token_embd.weight", "output.weight", linear_tensors(model)[0]]
    metadata = {"adapter.lora.alpha": None}
    adapter = write_adapter(
        tmp_path / "adapter.gguf", model, tensors, metadata=metadata, others={"blk.0.attn_norm.weight": (96,)}
    )
    difference, effect = compare(model, adapter)
    assert difference < 1e-3
    assert effect > 0.05
