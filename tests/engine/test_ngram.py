"""Guesses are what followed the same tokens before, from the longest match at hand."""

from __future__ import annotations

import random
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.engine.speculation.ngram import LONGEST_MATCH, NgramProposer

pytestmark = pytest.mark.unit


class Observed:
    """What a proposer reported."""

    def __init__(self) -> None:
        self.events: list[tuple[int, bool]] = []

    def observe(self, match_length: int, was_right: bool) -> None:
        self.events.append((match_length, was_right))


def proposer_of(tokens: list[int], observed: Observed | None = None, step: int = 1) -> NgramProposer:
    """A proposer that was given the tokens `step` at a time."""
    proposer = NgramProposer(observed or Observed())
    array = np.array(tokens, dtype=np.int32)
    for end in range(step, len(array), step):
        proposer.update(array[:end])
    proposer.update(array)
    return proposer


def continued(tokens: list[int], source: int, count: int) -> list[int]:
    """`count` tokens copied one by one from `source`, which may run into the copies."""
    copy = list(tokens)
    for index in range(count):
        copy.append(copy[source + index])
    return copy[len(tokens) :]


def test_what_followed_the_same_tokens_is_proposed():
    assert proposer_of([1, 2, 3, 4, 5, 9, 9, 1, 2, 3]).propose(4) == [4, 5, 9, 9]


def test_a_single_equal_token_is_no_match():
    assert proposer_of([1, 2, 3, 4, 7, 2]).propose(3) == []


def test_random_tokens_have_no_source():
    source = random.Random(1)
    tokens = [source.randrange(50_000) for _ in range(500)]
    observed = Observed()
    proposer_of(tokens, observed)
    assert len(observed.events) < 5


def test_the_longest_match_wins_over_a_later_one():
    tokens = [*(1, 2, 3, 4, 10), *(0, 3, 4, 20), *(1, 2, 3, 4)]
    proposer = proposer_of(tokens)
    assert (proposer.match_length, proposer.propose(1)) == (4, [10])


def test_the_latest_of_equal_matches_wins():
    assert proposer_of([3, 4, 10, 3, 4, 20, 3, 4]).propose(1) == [20]


def test_repetition_is_expected_to_go_on():
    assert proposer_of([7, 1, 2, 3, 1, 2, 3]).propose(8) == [1, 2, 3, 1, 2, 3, 1, 2]
    assert proposer_of([5, 5, 5]).propose(5) == [5] * 5


def test_every_guess_is_judged_when_its_token_comes():
    observed = Observed()
    proposer_of([1, 2, 3, 4, 5, 1, 2, 3, 4, 9], observed)
    assert observed.events == [(2, True), (3, True), (4, False)]


def test_a_long_match_is_kept_and_counts_as_the_longest():
    text = [random.Random(2).randrange(1000) for _ in range(200)]
    # The last four tokens also stand at a later place, but the match from the beginning is far longer.
    tokens = [*text, *text[96:100], 5000, *text[:100]]
    proposer = proposer_of(tokens)
    assert proposer.match_length == LONGEST_MATCH
    assert proposer.propose(3) == text[100:103]


def test_a_very_long_prompt_is_taken_in_over_several_steps():
    text = np.array([random.Random(3).randrange(30_000) for _ in range(10_000)] * 2, dtype=np.int32)
    text = text[:15_000]
    proposer = NgramProposer(Observed())
    for _ in range(3):
        proposer.update(text)
        assert proposer.propose(4) == []
    proposer.update(text)
    assert proposer.propose(4) == text[5000:5004].tolist()


@given(
    tokens=st.lists(st.integers(0, 3), min_size=1, max_size=120),
    step=st.integers(1, 20),
    count=st.integers(1, 20),
)
def test_a_guess_copies_what_followed_an_earlier_occurrence(tokens: list[int], step: int, count: int):
    proposer = proposer_of(tokens, step=step)
    guess, length = proposer.propose(count), proposer.match_length
    if length == 0:
        assert guess == []
        assert tuple(tokens[-2:]) not in list(pairwise(tokens[:-1]))
        return
    sources = [
        source
        for source in range(length, len(tokens))
        if tokens[source - length : source] == tokens[-length:]
    ]
    assert guess in [continued(tokens, source, count) for source in sources]


@given(tokens=st.lists(st.integers(0, 5), min_size=2, max_size=100), step=st.integers(2, 30))
def test_how_many_tokens_come_at_a_time_does_not_matter_to_the_index(tokens: list[int], step: int):
    # What is followed may differ, but a sequence without a source has none either way.
    assert bool(proposer_of(tokens).propose(1)) == bool(proposer_of(tokens, step=step).propose(1))


def test_memory_is_bounded_and_places_are_found_nevertheless():
    """A reply of as many tokens as the longest contexts have, to a short prompt."""
    source = random.Random(4)
    text = [source.randrange(50_000) for _ in range(100_000)]
    text += text[60_000:60_003]
    tracemalloc.start()
    proposer = proposer_of(text, step=4096)
    num_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_bytes < 12 * len(text) + (512 << 10)
    assert proposer.propose(3) == text[60_003:60_006]
