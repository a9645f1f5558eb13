"""Encoders' embeddings and rankers' scores are llama.cpp's, of texts longer than every window."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna.local import Engine
from tests.oracle.llamacpp import LlamaCpp
from tests.tiny import ENCODERS, RANKERS, write_tiny

pytestmark = pytest.mark.oracle

LENGTHS = (1, 2, 15, 47, 130, 300)
PAIRS = [("the an", "on the other hand"), ("in", "12 12 the the er"), ("a b c", "x")]


def vectors(path: Path, prompts: list[list[int]]) -> NDArray[np.float32]:
    with Engine(path, num_threads=2) as engine:
        ids = [engine.add_request(prompt, pooling=engine.info.pooling) for prompt in prompts]
        while engine.has_work:
            engine.step()
        return np.array([engine.embedding(i) for i in ids])


def least_cosine(path: Path) -> float:
    rng = np.random.default_rng(3)
    prompts = [rng.integers(0, 260, length).tolist() for length in LENGTHS]
    with LlamaCpp(path, context=512, pooling="unspecified") as oracle:
        theirs = np.array([oracle.embedding(prompt) for prompt in prompts])
    ours = vectors(path, prompts)
    ours /= np.linalg.norm(ours, axis=1, keepdims=True)
    return float((ours * theirs).sum(axis=1).min())


@pytest.mark.parametrize("name", ENCODERS)
def test_f32_weights_agree(name: str, tmp_path: Path) -> None:
    assert least_cosine(write_tiny(tmp_path / "tiny.gguf", ENCODERS[name])) > 1 - 1e-5


@pytest.mark.parametrize(
    ("name", "weight_type"), [("bert", "Q8_0"), ("modern-bert", "F16"), ("gemma-embedding", "Q4_0")]
)
def test_quantized_weights_agree(name: str, weight_type: str, tmp_path: Path) -> None:
    assert least_cosine(write_tiny(tmp_path / "tiny.gguf", ENCODERS[name], weight_type)) > 0.999


@pytest.mark.parametrize("name", RANKERS)
def test_scores(name: str, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", RANKERS[name])
    prompts, theirs = [], []
    with LlamaCpp(path, context=512, pooling="rank") as oracle:
        for query, text in PAIRS:
            prompts.append(
                oracle.tokenize(query) + oracle.tokenize(text)
            )  # the file asks for nothing between
            theirs.append(oracle.score(query, text))
    ours = vectors(path, prompts)[:, 0]
    assert np.ptp(theirs) > 1e-3
    assert np.abs(ours - theirs).max() < 1e-3
