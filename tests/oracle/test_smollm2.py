"""A real model: SmolLM2-135M in Q4_1 against llama.cpp on the same file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from puna.backends.base import DeviceModel
from puna.backends.cpu import CpuBackend
from tests.forward import all_logits, load_file, log_softmax
from tests.oracle.llamacpp import LlamaCpp
from tests.oracle.texts import TEXTS

pytestmark = pytest.mark.oracle

MIN_TOKENS = 200


class Position(NamedTuple):
    """Both engines' opinion of one token of a text."""

    same_top: bool
    lead: float  # of their likeliest token over their second, in nats
    our_logprob: float
    their_logprob: float


@pytest.fixture(scope="module")
def oracle(smollm2_path: Path) -> Iterator[LlamaCpp]:
    with LlamaCpp(smollm2_path) as server:
        yield server


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Iterator[DeviceModel]:
    backend = CpuBackend(num_threads=2)
    loaded = load_file(backend, smollm2_path)
    yield loaded
    loaded.close()
    backend.close()


@pytest.fixture(scope="module")
def positions(model: DeviceModel, oracle: LlamaCpp) -> list[Position]:
    """Every second position of five texts of at least MIN_TOKENS tokens."""
    return [position for text in TEXTS for position in compare(model, oracle, text)]


def compare(model: DeviceModel, oracle: LlamaCpp, text: str) -> Iterator[Position]:
    tokens = oracle.tokenize(text)
    assert len(tokens) >= MIN_TOKENS
    ours = log_softmax(all_logits(model, tokens))
    for position in range(0, len(tokens) - 1, 2):
        target = tokens[position + 1]
        theirs = oracle.next_logprobs(tokens[: position + 1], 500)
        if target not in theirs:
            theirs = oracle.next_logprobs(tokens[: position + 1], model.info.vocab_size)
        first, second = sorted(theirs, key=theirs.__getitem__, reverse=True)[:2]
        yield Position(
            same_top=int(ours[position].argmax()) == first,
            lead=theirs[first] - theirs[second],
            our_logprob=float(ours[position, target]),
            their_logprob=theirs[target],
        )


def test_likeliest_next_token_agrees(positions: list[Position]) -> None:
    """Everywhere but at near ties.

    Both engines round activations to 8 bits, each in its own way, and on this model that alone moves near
    ties: over these texts llama.cpp's likeliest token is that of the same weights in float32 at 97.0% of the
    positions, ours at 97.5%. So agreement between the two cannot reach 98% of all positions; it must where
    the oracle is not almost undecided itself.
    """
    assert np.mean([p.same_top for p in positions]) >= 0.96
    assert np.mean([p.same_top for p in positions if p.lead > 0.1]) >= 0.98


def test_perplexity_agrees(positions: list[Position]) -> None:
    ours = np.exp(-np.mean([p.our_logprob for p in positions]))
    theirs = np.exp(-np.mean([p.their_logprob for p in positions]))
    assert ours == pytest.approx(theirs, rel=0.005)


def test_greedy_choices_agree_but_at_near_ties(model: DeviceModel, oracle: LlamaCpp) -> None:
    """Along the oracle's own continuation: rounding may flip a choice, but only one it hardly prefers."""
    prompt = oracle.tokenize("The capital of France is")
    continuation = oracle.greedy(prompt, 16)
    choices = all_logits(model, prompt + continuation)[len(prompt) - 1 : -1].argmax(axis=1).tolist()
    for i, (ours, theirs) in enumerate(zip(choices, continuation, strict=True)):
        if ours != theirs:
            logprobs = oracle.next_logprobs(prompt + continuation[:i], model.info.vocab_size)
            assert logprobs[theirs] - logprobs[ours] < 0.5, i
    assert np.mean(np.equal(choices, continuation)) >= 0.75
