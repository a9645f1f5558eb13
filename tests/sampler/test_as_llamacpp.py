"""The chain leaves the tokens, with the probabilities, that llama.cpp's leaves of the same logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from puna._native import ThreadPool, sample_batch
from tests.oracle.llamacpp import LlamaCpp
from tests.sampler.reference import Params, distribution
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.oracle

PROMPT = [40, 41, 42, 40, 40, 77, 12]
HOT = 1e6
CHAINS = {
    "top_k": {"top_k": 7},
    "top_p": {"top_p": 0.6},
    "min_p": {"min_p": 0.1},
    "typical_p": {"typical_p": 0.6},
    "filters": {"top_k": 60, "typical_p": 0.9, "top_p": 0.8, "min_p": 0.05, "temperature": 0.7},
    "top_p, cold": {"top_p": 0.5, "temperature": 0.3},
    "penalties": {"presence_penalty": 1.5, "frequency_penalty": 0.7, "top_k": 100},
    "recent penalties": {"presence_penalty": 2.5, "repeat_last_n": 4, "top_k": 100},
    "bias": {"logit_bias": {40: 3.0, 9: -2.0}, "top_p": 0.7},
}


@pytest.fixture(scope="module")
def llamacpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCpp]:
    path = write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf", TINY["llama"])
    with LlamaCpp(path) as server:
        yield server


def probabilities_left(llamacpp: LlamaCpp, chain: dict[str, Any], vocab_size: int) -> dict[int, float]:
    params = {**vars(Params()), **chain}
    bias = [[token, value] for token, value in params.pop("logit_bias").items()]
    body = {"prompt": PROMPT, "n_predict": 1, "n_probs": vocab_size, "post_sampling_probs": True}
    reply: Any = llamacpp.post("/completion", {**params, **body, "logit_bias": bias})
    (first,) = reply["completion_probabilities"]
    return {entry["id"]: entry["prob"] for entry in first["top_probs"] if entry["prob"] > 0}


@pytest.mark.parametrize("name", CHAINS)
def test_tokens_left_as_by_llamacpp(name: str, llamacpp: LlamaCpp, pool: ThreadPool) -> None:
    params = Params(**CHAINS[name])
    # Log-probabilities are logits but for a constant, which only the repeat penalty would notice.
    logits = np.array(llamacpp.logprobs_at(PROMPT, 270), np.float32)
    theirs = probabilities_left(llamacpp, CHAINS[name], logits.size)
    samplers = [params.sampler(PROMPT, temperature=HOT, seed=seed) for seed in range(32 * len(theirs))]
    drawn = sample_batch(pool, np.tile(logits, (len(samplers), 1)), samplers).tokens
    assert set(drawn.tolist()) == set(theirs)
    ours = distribution(params, logits, PROMPT).probabilities
    np.testing.assert_allclose(ours[list(theirs)], list(theirs.values()), atol=2e-4)
