"""A seed decides the tokens: not the batch, not the threads, not the machine."""

from __future__ import annotations

import numpy as np
import pytest

from puna._native import NativeError, Sampler, ThreadPool, sample_batch
from tests.sampler.reference import Params

pytestmark = pytest.mark.native

LOGITS = (np.random.default_rng(5).standard_normal((12, 500)) * 2).astype(np.float32)
MIXED = [
    Params(),
    Params(top_k=40, top_p=0.9, temperature=0.8),
    Params(typical_p=0.7, repeat_penalty=1.2),
    Params(min_p=0.05, num_logprobs=3),
    Params(temperature=0.0, logit_bias={3: 9.0}),
]


def samplers(count: int = 12, first_seed: int = 0) -> list[Sampler]:
    return [MIXED[i % len(MIXED)].sampler([1, 2, 3], seed=first_seed + i) for i in range(count)]


def sequence(pool: ThreadPool, sampler: Sampler, row: int, count: int = 20) -> list[int]:
    return [int(sample_batch(pool, LOGITS[row : row + 1], [sampler]).tokens[0]) for _ in range(count)]


def test_same_tokens_alone_and_in_a_batch(pool: ThreadPool) -> None:
    batch = samplers()
    together = np.array([sample_batch(pool, LOGITS, batch).tokens for _ in range(20)]).T
    alone = [sequence(pool, sampler, row) for row, sampler in enumerate(samplers())]
    assert together.tolist() == alone


def test_same_tokens_on_any_number_of_threads(pool: ThreadPool) -> None:
    single = ThreadPool(1)
    results = [sample_batch(p, LOGITS, samplers()) for p in (pool, single)]
    single.close()
    assert results[0].tokens.tolist() == results[1].tokens.tolist()
    np.testing.assert_array_equal(results[0].logprobs, results[1].logprobs)


def test_tokens_of_a_seed_stay_what_they_are(pool: ThreadPool) -> None:
    """A stored seed must give the same text in the next release."""
    logits = np.zeros((1, 1000), np.float32)
    sampler = Params().sampler(seed=42)
    tokens = [int(sample_batch(pool, logits, [sampler]).tokens[0]) for _ in range(5)]
    assert tokens == [343, 955, 486, 67, 676]


def test_seeds_of_any_size_and_sign(pool: ThreadPool) -> None:
    first = [sequence(pool, Params().sampler(seed=seed), 0) for seed in (0, 1, -1, 2**63, 2**64 - 2)]
    assert len({tuple(tokens) for tokens in first}) == len(first)
    assert sequence(pool, Params().sampler(seed=2**64 + 1), 0) == first[1]


@pytest.mark.parametrize("params", [Params(), Params(top_k=16)])
def test_draws_are_even_over_seeds_and_over_time(params: Params, pool: ThreadPool) -> None:
    """Neighbouring seeds must not give neighbouring numbers: users count 1, 2, 3."""
    logits, count = np.zeros(16, np.float32), 4096
    first = sample_batch(
        pool, np.tile(logits, (count, 1)), [params.sampler(seed=seed) for seed in range(count)]
    ).tokens
    sampler = params.sampler(seed=9)
    later = np.array([sample_batch(pool, logits[None], [sampler]).tokens[0] for _ in range(count)])
    for tokens in (first, later):
        for values, bins in ((tokens, 16), (tokens[1:] * 16 + tokens[:-1], 256)):
            expected = len(values) / bins
            chi_squared = ((np.bincount(values, minlength=bins) - expected) ** 2 / expected).sum()
            assert chi_squared < bins + 6 * np.sqrt(2 * bins)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (np.nan, "a logit is NaN"),
        (np.inf, "the largest logit is inf"),
        (-np.inf, "the largest logit is -inf"),
    ],
)
@pytest.mark.parametrize("at", [0, 250, 499])
def test_bad_row_is_the_error_of_its_sampler_alone(
    value: float, match: str, at: int, pool: ThreadPool
) -> None:
    logits = LOGITS.copy()
    logits[7, slice(None) if value == -np.inf else at] = value
    batch = samplers()
    result = sample_batch(pool, logits, batch)
    sound = sample_batch(pool, LOGITS, samplers()).tokens.tolist()
    assert result.errors == {7: match}
    assert result.starts.tolist() == [*range(8), *range(7, len(batch))]
    assert result.tokens.tolist() == sound[:7] + sound[8:]
    assert sample_batch(pool, LOGITS[7:8], batch[7:8]).tokens.tolist() == sound[7:8]


def test_banning_every_token_is_an_error(pool: ThreadPool) -> None:
    sampler = Params(logit_bias={0: -np.inf, 1: -np.inf}).sampler()
    result = sample_batch(pool, np.zeros((1, 2), np.float32), [sampler])
    assert result.errors == {0: "the largest logit is -inf"}


def test_no_rows_give_no_tokens(pool: ThreadPool) -> None:
    result = sample_batch(pool, np.zeros((0, 5), np.float32), [])
    assert result.tokens.shape == result.logprobs.shape == (0,)
    assert result.top_tokens == []


def test_logits_are_left_as_they_were(pool: ThreadPool) -> None:
    logits = LOGITS.copy()
    sample_batch(pool, logits, samplers())
    np.testing.assert_array_equal(logits, LOGITS)


def test_rows_and_samplers_must_match(pool: ThreadPool) -> None:
    with pytest.raises(NativeError, match="logits have 12 rows, but there are 11 samplers"):
        sample_batch(pool, LOGITS, samplers(11))
    assert sample_batch(pool, np.zeros((1, 0), np.float32), samplers(1)).errors == {
        0: "the largest logit is -inf"
    }
    for logits in (LOGITS.astype(np.float64), LOGITS[0], LOGITS[:, ::2]):
        with pytest.raises(TypeError):
            sample_batch(pool, logits, samplers())


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({name: value}, f"{name} is {value}")
        for name in ("temperature", "top_p", "min_p", "typical_p", "presence_penalty", "frequency_penalty")
        for value in (np.nan, np.inf, -np.inf)
    ]
    + [
        ({"repeat_penalty": 1e-38}, "repeat_penalty is 1e-38, but must be from 0.001 to 1000"),
        ({"repeat_penalty": 1e4}, "repeat_penalty is 10000, but must be from 0.001 to 1000"),
        ({"presence_penalty": 1e30}, "presence_penalty is 1e[+]30, but must be from -100 to 100"),
        ({"frequency_penalty": -101}, "frequency_penalty is -101, but must be from -100 to 100"),
        ({"logit_bias": {1: 100.5}}, "a logit_bias is 100.5, but must be from -100 to 100"),
        ({"repeat_penalty": np.nan}, "repeat_penalty is nan, but must be finite"),
        ({"repeat_last_n": -2}, "repeat_last_n is -2.*, but must be -1 or more"),
        ({"num_logprobs": -2}, "num_logprobs is -2.*, but must be -1 or more"),
        ({"logit_bias": {-1: 0.0}}, "a token of logit_bias is -1.*, but must not be negative"),
        ({"logit_bias": {1: np.nan}}, "a logit_bias is nan"),
        ({"logit_bias": {1: np.inf}}, "a logit_bias is inf"),
    ],
)
def test_bad_parameter_is_named(params: dict[str, float], match: str) -> None:
    with pytest.raises(NativeError, match=match):
        Params(**params).sampler()
