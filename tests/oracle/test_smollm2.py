"""A real model: SmolLM2-135M in Q4_1 against llama.cpp on the same file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from puna.backends.base import DeviceModel
from puna.backends.cpu import CpuBackend
from tests.forward import all_logits, log_softmax
from tests.oracle.llamacpp import LlamaCpp
from tests.oracle.texts import TEXTS

pytestmark = pytest.mark.oracle

NUM_TOKENS = 210


@pytest.fixture(scope="module")
def oracle(smollm2_path: Path) -> Iterator[LlamaCpp]:
    with LlamaCpp(smollm2_path) as server:
        yield server


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Iterator[DeviceModel]:
    backend = CpuBackend(num_threads=2)
    loaded = backend.load(smollm2_path)
    yield loaded
    loaded.close()
    backend.close()


def test_likeliest_next_token_agrees(model: DeviceModel, oracle: LlamaCpp) -> None:
    """At ≥ 98% of the positions of five texts; both quantize activations, and round differently."""
    agree = []
    for text in TEXTS:
        tokens = oracle.tokenize(text)[:NUM_TOKENS]
        assert len(tokens) >= 200
        ours = all_logits(model, tokens).argmax(axis=1)
        for position in range(len(tokens)):
            top = oracle.next_logprobs(tokens[: position + 1], 1)
            agree.append(int(ours[position]) in top)
    assert np.mean(agree) >= 0.98


def test_perplexity_of_a_text_agrees(model: DeviceModel, oracle: LlamaCpp) -> None:
    tokens = oracle.tokenize(TEXTS[0])[:NUM_TOKENS]
    ours = log_softmax(all_logits(model, tokens))
    our_sum = their_sum = 0.0
    for position, target in enumerate(tokens[1:]):
        top = oracle.next_logprobs(tokens[: position + 1], 1000)
        if target not in top:
            top = oracle.next_logprobs(tokens[: position + 1], model.info.vocab_size)
        their_sum += top[target]
        our_sum += float(ours[position, target])
    count = len(tokens) - 1
    assert np.exp(-our_sum / count) == pytest.approx(np.exp(-their_sum / count), rel=0.005)


def test_greedy_continuations_agree(model: DeviceModel, oracle: LlamaCpp) -> None:
    tokens = oracle.tokenize("The capital of France is")
    continuation: list[int] = []
    while len(continuation) < 16:
        continuation.append(int(all_logits(model, tokens + continuation)[-1].argmax()))
    assert continuation == oracle.greedy(tokens, 16)
