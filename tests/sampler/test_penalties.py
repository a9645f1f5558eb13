"""Penalties count the last repeat_last_n accepted tokens, the prompt's and the chosen ones alike."""

from __future__ import annotations

import numpy as np
import pytest

from puna._native import Sampler, ThreadPool, sample_batch
from tests.sampler.reference import Params

pytestmark = pytest.mark.native

PENALTY = Params(temperature=0.0, presence_penalty=1.0)


def greedy(pool: ThreadPool, sampler: Sampler, logits: list[float], count: int = 1) -> list[int]:
    rows = np.array([logits], np.float32)
    return [int(sample_batch(pool, rows, [sampler]).tokens[0]) for _ in range(count)]


@pytest.mark.parametrize(
    ("params", "rival", "winner"),
    [
        # Token 0 has logit 2 and was seen twice; token 1 wins as soon as its logit is above what is left.
        ({"repeat_penalty": 1.6}, 1.24, 0),  # 2 / 1.6 = 1.25
        ({"repeat_penalty": 1.6}, 1.26, 1),
        ({"presence_penalty": 0.5}, 1.49, 0),  # once, however often it was seen
        ({"presence_penalty": 0.5}, 1.51, 1),
        ({"frequency_penalty": 0.5}, 0.99, 0),  # once per occurrence
        ({"frequency_penalty": 0.5}, 1.01, 1),
        ({"repeat_penalty": 1.6, "presence_penalty": 0.25, "frequency_penalty": 0.25}, 0.49, 0),
        ({"repeat_penalty": 1.6, "presence_penalty": 0.25, "frequency_penalty": 0.25}, 0.51, 1),
    ],
)
def test_strength_of_penalties(params: dict[str, float], rival: float, winner: int, pool: ThreadPool) -> None:
    sampler = Params(temperature=0.0, **params).sampler([0, 0])
    assert greedy(pool, sampler, [2.0, rival]) == [winner]


@pytest.mark.parametrize(("rival", "winner"), [(-3.1, 0), (-2.9, 1)])
def test_negative_logits_are_multiplied(rival: float, winner: int, pool: ThreadPool) -> None:
    sampler = Params(temperature=0.0, repeat_penalty=1.5).sampler([0])
    assert greedy(pool, sampler, [-2.0, rival]) == [winner]


@pytest.mark.parametrize(
    ("repeat_last_n", "penalized"), [(0, False), (2, False), (3, True), (64, True), (-1, True)]
)
def test_only_the_last_tokens_count(repeat_last_n: int, penalized: bool, pool: ThreadPool) -> None:
    params = Params(temperature=0.0, presence_penalty=1.0, repeat_last_n=repeat_last_n)
    assert greedy(pool, params.sampler([0, 5, 6]), [2.0, 1.5]) == [1 if penalized else 0]


def test_token_repeated_in_the_window_counts_until_its_last_leaves(pool: ThreadPool) -> None:
    params = Params(temperature=0.0, frequency_penalty=1.0, repeat_last_n=2)
    assert greedy(pool, params.sampler([0, 0]), [2.0, 0.5]) == [1]
    assert greedy(pool, params.sampler([0, 0, 3]), [2.0, 0.5]) == [0]


def test_chosen_tokens_count(pool: ThreadPool) -> None:
    assert greedy(pool, PENALTY.sampler(), [2.0, 1.5, 1.2], 3) == [0, 1, 2]


def test_tokens_are_accepted_one_by_one_or_together(pool: ThreadPool) -> None:
    one_by_one = PENALTY.sampler()
    for token in (0, 1):
        one_by_one.accept(token)
    assert greedy(pool, one_by_one, [2.0, 1.5, 1.2]) == [2]
    assert greedy(pool, PENALTY.sampler([0, 1]), [2.0, 1.5, 1.2]) == [2]


def test_accepted_tokens_beyond_the_vocabulary_are_ignored(pool: ThreadPool) -> None:
    assert greedy(pool, PENALTY.sampler([-1, 99]), [2.0, 1.5]) == [0]


@pytest.mark.parametrize("repeat_last_n", [-1, 0, 1, 3, 5, 6, 64])
def test_many_tokens_count_as_the_same_ones_one_by_one(repeat_last_n: int, pool: ThreadPool) -> None:
    params = Params(temperature=0.0, frequency_penalty=0.3, repeat_last_n=repeat_last_n)
    history, logits = [0, 1, 0, 2, 0, 1], [2.0, 1.85, 1.65, 1.25]
    one_by_one = params.sampler()
    for token in history:
        one_by_one.accept(token)
    assert greedy(pool, params.sampler(history), logits, 8) == greedy(pool, one_by_one, logits, 8)
