"""Which tokens can be drawn, and how often: what the chain's definition says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puna._native import ThreadPool, sample_batch
from tests.sampler.reference import Params, changed_logits, distribution

pytestmark = pytest.mark.native

HOT = 1e6  # filters come before temperature, so at this one all that they keep is drawn equally often

ROUNDING = 1e-5  # decisions nearer than this may fall either way in float32


def draws(
    pool: ThreadPool,
    params: Params,
    logits: NDArray[np.float32],
    count: int,
    history: Sequence[int] = (),
    temperature: float | None = None,
) -> NDArray[np.int32]:
    """The first tokens of `count` samplers with seeds of their own."""
    temperature = params.temperature if temperature is None else temperature
    samplers = [params.sampler(history, temperature=temperature, seed=seed) for seed in range(count)]
    return sample_batch(pool, np.tile(logits, (count, 1)), samplers).tokens


def check_support(
    pool: ThreadPool, params: Params, logits: NDArray[np.float32], history: Sequence[int]
) -> None:
    expected = distribution(params, logits, history)
    support = np.flatnonzero(expected.probabilities)
    drawn = draws(pool, params, logits, 32 * len(support), history, temperature=HOT)
    assert sorted(set(drawn.tolist())) == support.tolist()


def check_frequencies(
    pool: ThreadPool, params: Params, logits: NDArray[np.float32], history: Sequence[int]
) -> None:
    expected = distribution(params, logits, history)
    count = 2000
    drawn = np.bincount(draws(pool, params, logits, count, history), minlength=logits.size) / count
    deviation = np.sqrt(expected.probabilities / count)
    assert (np.abs(drawn - expected.probabilities) <= 7 * deviation + 1e-3).all()


LOGITS = st.builds(
    lambda seed, size, spread: (np.random.default_rng(seed).standard_normal(size) * spread).astype(
        np.float32
    ),
    seed=st.integers(0, 2**32),
    size=st.integers(1, 40),
    spread=st.sampled_from([0.1, 1.0, 4.0]),
)
SHARE = st.sampled_from([0.0, 0.05, 0.3, 0.7, 0.95, 1.0])
PARAMS = st.builds(
    Params,
    temperature=st.sampled_from([0.3, 0.8, 1.0, 2.0]),
    top_k=st.sampled_from([-1, 0, 1, 5, 20, 100]),
    top_p=SHARE,
    min_p=SHARE.map(lambda share: share / 2),
    typical_p=SHARE,
    repeat_last_n=st.sampled_from([-1, 0, 1, 3, 64]),
    repeat_penalty=st.sampled_from([0.8, 1.0, 1.3]),
    presence_penalty=st.sampled_from([-1.0, 0.0, 0.5]),
    frequency_penalty=st.sampled_from([-0.5, 0.0, 0.7]),
    logit_bias=st.dictionaries(st.integers(0, 39), st.sampled_from([-100.0, -1.5, 2.0]), max_size=3),
)
PROPERTY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("check", [check_support, check_frequencies])
@PROPERTY
@given(params=PARAMS, logits=LOGITS, history=st.lists(st.integers(0, 39), max_size=12))
def test_chain_as_defined(check, params: Params, logits, history: list[int], pool: ThreadPool) -> None:
    size = logits.size
    bias = {token: value for token, value in params.logit_bias.items() if token < size}
    params = Params(**{**vars(params), "logit_bias": bias})
    history = [token % size for token in history]
    assume(distribution(params, logits, history).margin > ROUNDING)
    check(pool, params, logits, history)


ALONE = {
    "top_k": Params(top_k=7),
    "top_p": Params(top_p=0.6),
    "top_p with top_k": Params(top_p=0.6, top_k=200),
    "min_p": Params(min_p=0.1),
    "typical_p": Params(typical_p=0.5),
    "typical_p, top_p": Params(typical_p=0.8, top_p=0.7),
    "typical_p, min_p": Params(typical_p=0.8, min_p=0.1),
    "all": Params(top_k=150, typical_p=0.9, top_p=0.8, min_p=0.02),
}


@pytest.mark.parametrize("name", ALONE)
def test_filter_keeps_its_tokens_of_many(name: str, pool: ThreadPool) -> None:
    """More tokens than the selection's first chunk."""
    logits = (np.random.default_rng(3).standard_normal(300) * 1.3).astype(np.float32)
    assert distribution(ALONE[name], logits, ()).margin > ROUNDING
    check_support(pool, ALONE[name], logits, ())


@pytest.mark.parametrize(
    "filters", [{"top_k": 0, "top_p": 0.0}, {"top_k": 1}, {"min_p": 1.0}, {"min_p": 5.0}]
)
def test_the_likeliest_token_always_remains(filters: dict[str, float], pool: ThreadPool) -> None:
    logits = np.random.default_rng(3).standard_normal(300).astype(np.float32)
    assert set(draws(pool, Params(**filters), logits, 50, temperature=HOT)) == {logits.argmax()}


def test_unfiltered_draw_reaches_every_part_of_the_vocabulary(pool: ThreadPool) -> None:
    likely = [0, 1023, 1024, 2047, 2600, 4998]
    logits = np.full(4999, -np.inf, np.float32)
    logits[likely] = 5.0
    drawn = np.bincount(draws(pool, Params(), logits, 3000), minlength=4999)
    assert np.flatnonzero(drawn).tolist() == likely
    assert (np.abs(drawn[likely] / 3000 - 1 / 6) < 0.04).all()


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-3])
def test_cold_is_nearly_greedy(temperature: float, pool: ThreadPool) -> None:
    logits = np.random.default_rng(3).standard_normal(300).astype(np.float32)
    for params in (Params(), Params(top_k=40)):
        assert set(draws(pool, params, logits, 20, temperature=temperature)) == {logits.argmax()}


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_greedy_takes_the_lowest_id_of_the_likeliest(temperature: float, pool: ThreadPool) -> None:
    logits = np.zeros(3000, np.float32)
    logits[[17, 900, 2999]] = 3.5
    params = Params(temperature=temperature, typical_p=0.1, top_k=3)
    assert draws(pool, params, logits, 3).tolist() == [17] * 3


@PROPERTY
@given(params=PARAMS, logits=LOGITS, history=st.lists(st.integers(0, 39), max_size=12))
def test_greedy_after_bias_and_penalties(
    params: Params, logits, history: list[int], pool: ThreadPool
) -> None:
    bias = {token % logits.size: value for token, value in params.logit_bias.items()}
    params = Params(**{**vars(params), "temperature": 0.0, "logit_bias": bias})
    history = [token % logits.size for token in history]
    changed = changed_logits(params, logits, history)
    second, first = np.sort(np.append(changed, -np.inf))[-2:]
    assume(first - second > 1e-4)
    assert draws(pool, params, logits, 1, history) == [changed.argmax()]


def test_banned_token_is_never_drawn(pool: ThreadPool) -> None:
    logits = np.zeros(4, np.float32)
    for params in (Params(), Params(top_k=4), Params(top_k=40, top_p=0.99)):
        banned = Params(**{**vars(params), "logit_bias": {1: -np.inf}})
        assert set(draws(pool, banned, logits, 300).tolist()) == {0, 2, 3}


def test_bias_of_tokens_beyond_the_vocabulary_is_ignored(pool: ThreadPool) -> None:
    params = Params(temperature=0.0, logit_bias={4: 100.0, 2**40: 100.0, 2: 1.0})
    assert draws(pool, params, np.zeros(4, np.float32), 1) == [2]
