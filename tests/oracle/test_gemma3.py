"""A real model with windows: Gemma 3 270M in Q4_K_M against llama.cpp on the same file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna.backends.cpu import CpuBackend
from puna.backends.cpu.backend import CpuModel
from tests.forward import load_file, log_softmax, logits_at
from tests.oracle.llamacpp import LlamaCpp
from tests.oracle.texts import TEXTS

pytestmark = pytest.mark.oracle

LONG = 3000
# Before and behind the window of 512, between, and at the end.
FAR = [510, 513, 1600, LONG - 1]
NUM_TOP = 500


@pytest.fixture(scope="module")
def oracle(gemma3_path: Path) -> Iterator[LlamaCpp]:
    with LlamaCpp(gemma3_path, context=LONG + 8) as server:
        yield server


@pytest.fixture(scope="module")
def model(gemma3_path: Path) -> Iterator[CpuModel]:
    backend = CpuBackend(num_threads=2)
    loaded = load_file(backend, gemma3_path)
    yield loaded
    loaded.close()
    backend.close()


def compared(
    model: CpuModel, oracle: LlamaCpp, tokens: list[int], positions: Sequence[int]
) -> Iterator[tuple[NDArray[np.float64], dict[int, float]]]:
    """Both engines' log-probabilities behind these positions: ours of all tokens, theirs of the likeliest."""
    ours = log_softmax(logits_at(model, tokens, positions))
    for position, logprobs in zip(positions, ours, strict=True):
        yield logprobs, oracle.next_logprobs(tokens[: position + 1], NUM_TOP)


def test_perplexity_agrees(model: CpuModel, oracle: LlamaCpp) -> None:
    """Over tokens that are among the oracle's likeliest: it says nothing of others."""
    ours, theirs = [], []
    for text in TEXTS:
        tokens = oracle.tokenize(text, add_special=True)
        positions = range(15, len(tokens) - 1, 32)
        for position, (our, their) in zip(positions, compared(model, oracle, tokens, positions), strict=True):
            if (target := tokens[position + 1]) in their:
                ours.append(our[target])
                theirs.append(their[target])
    assert len(ours) > 25
    assert np.exp(-np.mean(ours)) == pytest.approx(np.exp(-np.mean(theirs)), rel=0.02)


def test_greedy_choices_agree_but_at_near_ties(model: CpuModel, oracle: LlamaCpp) -> None:
    """Along the oracle's own continuation: rounding may flip a choice, but only one it hardly prefers."""
    prompt = oracle.tokenize("The capital of France is", add_special=True)
    continuation = oracle.greedy(prompt, 32)
    behind = range(len(prompt) - 1, len(prompt) + 31)
    choices = logits_at(model, prompt + continuation, behind).argmax(axis=1).tolist()
    for i, (ours, theirs) in enumerate(zip(choices, continuation, strict=True)):
        if ours != theirs:
            logprobs = oracle.next_logprobs(prompt + continuation[:i], NUM_TOP)
            assert logprobs[theirs] - logprobs[ours] < 0.5, i
    assert np.mean(np.equal(choices, continuation)) >= 0.75


def test_three_thousand_tokens(model: CpuModel, oracle: LlamaCpp) -> None:
    tokens = oracle.tokenize("\n".join(TEXTS * 4), add_special=True)[:LONG]
    assert len(tokens) == LONG
    for our, their in compared(model, oracle, tokens, FAR):
        likely = [token for token, logprob in their.items() if logprob > np.log(0.01)]
        np.testing.assert_allclose(our[likely], [their[token] for token in likely], atol=0.5)
        divergence = sum(np.exp(logprob) * (logprob - our[token]) for token, logprob in their.items())
        assert divergence < 0.02
