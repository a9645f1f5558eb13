"""Embeddings are llama.cpp's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna import LLM
from puna.gguf.pooling import Pooling
from tests.oracle.llamacpp import LlamaCpp
from tests.oracle.texts import TEXTS
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.oracle

SHORT = ["Hello", "The capital of France is Paris.", "Grüße aus München 🦊"]


def least_cosine(path: Path, pooling: Pooling, texts: list[str], kv_type: str) -> float:
    with LlamaCpp(path, kv_type=kv_type, pooling=pooling) as oracle:
        theirs = np.array([oracle.embedding(text) for text in texts])
    with LLM(path, num_threads=2, kv_type=kv_type, context_length=2048) as llm:
        ours = llm.embed(texts, pooling=pooling)
    return float((unit(ours) * unit(theirs)).sum(axis=1).min())


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    normalized: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return normalized


def test_smollm2(smollm2_path: Path) -> None:
    assert least_cosine(smollm2_path, "last", [*SHORT, TEXTS[0][:300]], "f16") > 0.999


def test_gemma3(gemma3_path: Path) -> None:
    """Its weights are in formats for which llama.cpp rounds activations in another way than we do."""
    assert least_cosine(gemma3_path, "mean", [*SHORT, TEXTS[0][:300]], "f16") > 0.998


@pytest.mark.parametrize(
    ("name", "pooling"),
    [
        ("qwen3", "mean"),
        ("gemma4-small", "mean"),
        ("deepseek2", "last"),
        ("qwen3next", "mean"),
        ("granitehybrid", "cls"),
    ],
)
def test_architectures(name: str, pooling: Pooling, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TINY[name])
    assert least_cosine(path, pooling, SHORT, "f32") > 1 - 1e-5
