"""Large and unpleasant vocabularies, where selecting goes other ways than sorting: support against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from puna._native import ThreadPool, cpu_info, sample_batch
from tests.sampler.reference import Params, distribution

pytestmark = pytest.mark.native

HOT = 1e6  # filters come before temperature, so at this one all that they keep is drawn equally often
SIZE = 30_000
RNG = np.random.default_rng(7)
BELL = RNG.standard_normal(SIZE)
LOGITS: dict[str, NDArray[Any]] = {
    "flat": BELL * 0.5,
    "wide": BELL * 3,
    "coarse": np.round(BELL * 2),
    "narrow": BELL * 1e-3,
    "two clusters": np.where(BELL > 0, 5 + BELL * 1e-3, BELL * 1e-3),
    "masked": np.where(BELL > 1, BELL, -1e30),
    "banned": np.where(BELL > 1, BELL, -np.inf),
    "sorted": np.sort(BELL),
    "signed zeros": np.where(BELL > 0, 0.0, -0.0),
}
CHAINS: dict[str, dict[str, Any]] = {
    "top_k 1": {"top_k": 1},
    "top_k 40": {"top_k": 40},
    "top_k 4000": {"top_k": 4000},
    "top_k beyond": {"top_k": 10**9},
    "top_p 0.5": {"top_p": 0.5},
    "top_p 0.999": {"top_p": 0.999},
    "min_p 0.3": {"min_p": 0.3},
    "typical_p 0.7": {"typical_p": 0.7},
    "typical_p 0.999": {"typical_p": 0.999},
    "all": {"top_k": 5000, "typical_p": 0.9, "top_p": 0.9, "min_p": 0.001},
}


def draw(
    pool: ThreadPool, params: Params, logits: NDArray[Any], count: int, **changes: Any
) -> NDArray[np.int32]:
    rows = np.tile(logits.astype(np.float32), (50, 1))
    batches = [
        sample_batch(pool, rows, [params.sampler(seed=seed + i, **changes) for i in range(50)]).tokens
        for seed in range(0, count, 50)
    ]
    return np.concatenate(batches)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("name", LOGITS)
def test_draws_are_even_over_what_the_filters_keep(name: str, chain: str, pool: ThreadPool) -> None:
    logits, params = LOGITS[name].astype(np.float32), Params(**CHAINS[chain])
    kept = np.flatnonzero(distribution(params, logits, ()).probabilities)
    drawn = draw(pool, params, logits, 500, temperature=HOT)
    # Float sums may move the cut by a few tokens, of the least likely or the most surprising.
    strange = np.setdiff1d(drawn, kept)
    assert strange.size <= (0 if params.top_k > 0 and len(CHAINS[chain]) == 1 else 1), strange
    bins = min(kept.size, 10)
    bin_of = np.arange(kept.size) * bins // kept.size
    expected = np.bincount(bin_of) / kept.size * 500
    counts = np.bincount(bin_of[np.searchsorted(kept, drawn).clip(0, kept.size - 1)], minlength=bins)
    assert ((counts - expected) ** 2 / expected).sum() < bins + 6 * np.sqrt(2 * bins)


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 255, 256, 257, 1000, 4095, 4097])
@pytest.mark.parametrize("chain", CHAINS)
def test_equal_logits_are_kept_by_id(size: int, chain: str, pool: ThreadPool) -> None:
    params = Params(**CHAINS[chain])
    logits = np.full(size, 1.5, np.float32)
    share = params.top_p if chain != "all" else 0.9 * 0.9
    share = params.typical_p if chain.startswith("typical") else share
    count = min(size, params.top_k if params.top_k > 0 else size)
    drawn = draw(pool, params, logits, 200, temperature=HOT)
    assert drawn.max() < np.ceil(count * share) + 1
    if count == 1:
        assert set(drawn.tolist()) == {0}
    if size > 1000:
        assert drawn.max() > 0.9 * count * share - 1


@pytest.mark.parametrize("size", [1, 15, 16, 17, 255, 256, 257, 511, 4097])
def test_last_token_of_any_vocabulary_can_win(size: int, pool: ThreadPool) -> None:
    logits = np.zeros(size, np.float32)
    logits[-1] = 200
    for changes in (
        {"temperature": 0.0},
        {},
        {"top_k": 3},
        {"top_p": 0.9},
        {"min_p": 0.1},
        {"typical_p": 0.5},
    ):
        assert set(draw(pool, Params(**changes), logits, 50)) == {size - 1}, changes


@pytest.mark.parametrize("temperature", [1e-45, 1e-38, 1e-3, 1.0, 1e3, 3e38])
@pytest.mark.parametrize("chain", CHAINS)
def test_extreme_logits_at_extreme_temperatures(temperature: float, chain: str, pool: ThreadPool) -> None:
    logits = np.full(3000, -3.4e38, np.float32)
    logits[[5, 2999]] = 3.4e38
    logits[::7] = -np.inf
    params = Params(**{**CHAINS[chain], "temperature": temperature})
    drawn = set(draw(pool, params, logits, 100).tolist())
    assert (
        drawn <= {5, 2999}
        if params.top_p < 0.99 or temperature < 1e30
        else not drawn & set(range(0, 2999, 7))
    )
    assert 5 in drawn


@pytest.mark.parametrize("name", LOGITS)
def test_every_instruction_set_chooses_the_same(name: str, pool: ThreadPool) -> None:
    params = [
        Params(**{**chain, "temperature": t, "num_logprobs": n, "repeat_penalty": 1.1})
        for chain in ({}, *CHAINS.values())
        for t, n in ((0.7, -1), (1.0, 9))
    ]
    results = [
        sample_batch(
            pool,
            np.tile(LOGITS[name].astype(np.float32), (len(params), 1)),
            [p.sampler([3, 77, SIZE - 1], seed=seed) for seed, p in enumerate(params)],
            isa=isa,
        )
        for isa in cpu_info().isas
    ]
    for result in results:
        assert result.tokens.tolist() == results[0].tokens.tolist()
        assert result.top_tokens == results[0].top_tokens
        np.testing.assert_array_equal(result.logprobs, results[0].logprobs)


def test_one_long_row_on_any_number_of_threads(pool: ThreadPool) -> None:
    logits = np.random.default_rng(1).standard_normal((1, 300_001)).astype(np.float32)
    single = ThreadPool(1)
    for params in (Params(), Params(top_p=0.9), Params(temperature=0.0, num_logprobs=5)):
        one, two = (sample_batch(p, logits, [params.sampler()]) for p in (single, pool))
        assert one.tokens.tolist() == two.tokens.tolist()
        assert one.top_tokens == two.top_tokens
    single.close()


@pytest.mark.parametrize("at", [0, 255, 256, 69_999])
@pytest.mark.parametrize("params", [Params(), Params(repeat_penalty=1.3), Params(top_k=5, num_logprobs=2)])
def test_nan_is_found_anywhere(at: int, params: Params, pool: ThreadPool) -> None:
    logits = np.zeros((1, 70_000), np.float32)
    logits[0, at] = -np.nan
    assert sample_batch(pool, logits, [params.sampler([at])]).errors == {0: "a logit is NaN"}


def test_changed_logits_do_not_change_logprobs(pool: ThreadPool) -> None:
    """Every block has a changed token."""
    logits = (BELL * 2).astype(np.float32)[None]
    bias = dict.fromkeys(range(0, SIZE, 100), 50.0)
    plain = Params(num_logprobs=20, temperature=0.0)
    biased = Params(num_logprobs=20, temperature=0.0, logit_bias=bias)
    expected, result = (sample_batch(pool, logits, [p.sampler()]) for p in (plain, biased))
    assert result.top_tokens == expected.top_tokens
    assert result.tokens[0] == max(bias, key=lambda token: logits[0, token])
