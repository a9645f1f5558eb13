"""A mask decides what may be drawn, and nothing else."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puna._native import NativeError, Sampler, ThreadPool, TokenMask, cpu_info, sample_batch
from tests.sampler.reference import Params, log_softmax

pytestmark = pytest.mark.native

CHAINS = [
    Params(temperature=0.0),
    Params(num_logprobs=3),
    Params(top_k=5, top_p=0.9, repeat_penalty=1.4, presence_penalty=0.5),
    Params(typical_p=0.8, min_p=0.01, logit_bias={7: 2.0}),
    Params(temperature=1.5, num_logprobs=0, repeat_penalty=1.2),
]


def write(mask: TokenMask, allowed: NDArray[np.bool_]) -> TokenMask:
    bits = np.packbits(allowed, bitorder="little")
    ctypes.memset(mask.address, 0, mask.num_bytes)
    ctypes.memmove(mask.address, bits.ctypes.data, len(bits))
    mask.finish()
    return mask


def mask_of(tokens: Sequence[int], vocabulary: int) -> TokenMask:
    return write(TokenMask(vocabulary), np.isin(np.arange(vocabulary), tokens))


def samplers(seed: int) -> list[Sampler]:
    return [chain.sampler([1, 2, 3], seed=seed) for chain in CHAINS]


@settings(deadline=None, max_examples=60)
@given(
    vocabulary=st.sampled_from([2, 31, 255, 256, 300, 1000]),
    share=st.sampled_from([0.002, 0.3, 0.99, 0.998, 1.0]),
    isa=st.sampled_from(["portable", *cpu_info().isas]),
    seed=st.integers(0, 1000),
)
def test_the_rest_is_as_if_it_had_no_chance(
    pool: ThreadPool, vocabulary: int, share: float, isa: str, seed: int
):
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((len(CHAINS), vocabulary)).astype(np.float32)
    allowed = rng.random((len(CHAINS), vocabulary)) < share
    allowed[:, rng.integers(vocabulary)] = True
    masks = [write(TokenMask(vocabulary), row) for row in allowed]
    drawn = sample_batch(pool, logits, samplers(seed), isa=isa, masks=masks)
    alone = sample_batch(pool, np.where(allowed, logits, np.float32(-np.inf)), samplers(seed))
    assert drawn.tokens.tolist() == alone.tokens.tolist()
    for row, (token, logprob) in enumerate(zip(drawn.tokens, drawn.logprobs, strict=True)):
        if CHAINS[row].num_logprobs >= 0:
            assert logprob == pytest.approx(log_softmax(logits[row])[token], abs=1e-4)
    assert [token for token, _ in drawn.top_tokens[1]] == np.argsort(-logits[1])[:3].tolist()


def test_the_only_token_is_drawn_whatever_its_logit_is(pool: ThreadPool):
    logits = np.full((len(CHAINS), 300), -np.inf, np.float32)
    logits[:, 5] = 1.0
    mask = mask_of([299], 300)
    assert mask.only == 299
    assert sample_batch(pool, logits, samplers(0), masks=[mask] * 5).tokens.tolist() == [299] * 5


@pytest.mark.parametrize("allowed", [[7], [3, 7]])
def test_what_is_banned_is_not_drawn_even_if_nothing_else_is_allowed(pool: ThreadPool, allowed: list[int]):
    banned = Params(logit_bias=dict.fromkeys(allowed, -np.inf)).sampler([], seed=1)
    result = sample_batch(pool, np.zeros((1, 9), np.float32), [banned], masks=[mask_of(allowed, 9)])
    assert list(result.errors) == [0]


def test_what_the_vocabulary_and_the_mask_do_not_share_is_not_drawn(pool: ThreadPool):
    short, long = mask_of([3, 4], 10), mask_of([3, 4, 900], 1000)
    logits = np.zeros((2, 600), np.float32)
    logits[:, 500] = 9
    drawn = sample_batch(pool, logits, [Params().sampler(), Params().sampler()], masks=[short, long])
    assert set(drawn.tokens.tolist()) <= {3, 4}
    beyond = sample_batch(pool, logits[:1], [Params().sampler()], masks=[mask_of([900], 1000)])
    assert "none of the model's" in beyond.errors[0]


def test_a_mask_that_failed_ends_its_row_alone(pool: ThreadPool):
    failed, empty, fine = TokenMask(30), mask_of([], 30), mask_of([6], 30)
    failed.fail("too complex")
    logits = np.zeros((5, 30), np.float32)
    starts = np.array([0, 0, 0, 2], np.int32)
    result = sample_batch(
        pool,
        logits,
        [Params().sampler() for _ in range(3)],
        np.array([6, 6], np.int32),
        starts,
        masks=[failed, empty, fine, failed, fine],
    )
    assert result.errors == {0: "too complex", 1: "no token is allowed"}
    assert result.tokens.tolist() == [6]  # behind its draft, the next step tells
    with pytest.raises(NativeError, match="5 rows have 1 masks"):
        sample_batch(pool, logits, [Params().sampler()] * 5, masks=[fine])
