"""Log-probabilities are the model's own: of the logits as they came, whatever the chain does to them."""

from __future__ import annotations

import numpy as np
import pytest

from puna._native import ThreadPool, sample_batch
from tests.sampler.reference import Params, log_softmax

pytestmark = pytest.mark.native

CHAINS = [
    Params(),
    Params(temperature=0.0),
    Params(temperature=0.5, top_k=3, logit_bias={7: 5.0}, repeat_penalty=1.5),
]


@pytest.mark.parametrize("params", CHAINS)
@pytest.mark.parametrize("size", [1, 15, 1024, 5000])
def test_logprobs_of_the_model(params: Params, size: int, pool: ThreadPool) -> None:
    logits = (np.random.default_rng(size).standard_normal((1, size)) * 3).astype(np.float32)
    result = sample_batch(pool, logits, [params.sampler([7], num_logprobs=5)])
    expected = log_softmax(logits[0])
    assert result.logprobs.dtype == np.float32
    np.testing.assert_allclose(result.logprobs[0], expected[result.tokens[0]], atol=2e-6, rtol=1e-6)
    tokens, logprobs = zip(*result.top_tokens[0], strict=True)
    assert list(tokens) == np.argsort(-logits[0], kind="stable")[:5].tolist()
    np.testing.assert_allclose(logprobs, expected[list(tokens)], atol=2e-6, rtol=1e-6)


def test_off_unless_asked_for(pool: ThreadPool) -> None:
    logits = np.zeros((3, 8), np.float32)
    batch = [Params().sampler(num_logprobs=n) for n in (-1, 0, 2)]
    result = sample_batch(pool, logits, batch)
    assert np.isnan(result.logprobs).tolist() == [True, False, False]
    assert [len(top) for top in result.top_tokens] == [0, 0, 2]


ORDERS = {
    "ascending": np.arange(5000),
    "descending": -np.arange(5000),
    "equal": np.zeros(5000),
    "ties": np.arange(5000) % 7,
    "sawtooth": np.arange(5000) % 997,
    "random": np.random.default_rng(0).standard_normal(5000),
    "a few finite": np.where(np.arange(5000) % 1700 == 0, 1.0, -np.inf),
}


@pytest.mark.parametrize("count", [1, 2, 63, 1000, 4999, 5000, 2**40])
@pytest.mark.parametrize("order", ORDERS)
def test_likeliest_tokens_are_selected_in_order(order: str, count: int, pool: ThreadPool) -> None:
    """However the logits lie, equal ones come by id, and tokens of probability 0 do not come."""
    logits = ORDERS[order].astype(np.float32)
    result = sample_batch(pool, logits[None], [Params().sampler(num_logprobs=count)])
    expected = np.argsort(-logits, kind="stable")[:count]
    expected = expected[np.isfinite(logits[expected])]
    assert [token for token, _ in result.top_tokens[0]] == expected.tolist()
