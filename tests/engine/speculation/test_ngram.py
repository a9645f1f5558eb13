"""Drafts are what followed the same tokens before, from the longest match at hand."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puna._native import NativeError, NgramDrafter, StepCosts, draft_from_text
from tests.engine.speculation.reference_drafts import LONGEST_MATCH, NgramSpeculator, plan_drafts

pytestmark = pytest.mark.native

FREE = StepCosts()
for size in (1, 1000):
    FREE.observe(size, 1.0)


def drafts_of(
    tokens: list[int], count: int, step: int = 1 << 20, drafter: NgramDrafter | None = None
) -> list[int]:
    """Of one drafter that is given the tokens `step` at a time, where drafts cost nothing."""
    drafter, array = drafter or NgramDrafter(), np.array(tokens, dtype=np.int32)
    for end in [*range(step, len(array), step), len(array)]:
        [drafts] = draft_from_text([drafter], [array], [end], [count], [0.0], 1, 1, FREE)
    return drafts


def random_tokens(count: int, vocabulary: int, seed: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(vocabulary) for _ in range(count)]


def test_what_followed_the_same_tokens_is_drafted():
    assert drafts_of([1, 2, 3, 4, 5, 9, 9, 1, 2, 3], 4) == [4, 5, 9, 9]


def test_a_single_equal_token_is_no_match():
    assert drafts_of([1, 2, 3, 4, 7, 2], 3) == []


def test_the_longest_match_wins_over_a_later_one():
    tokens = [*(1, 2, 3, 4, 10), *(0, 3, 4, 20), *(1, 2, 3, 4)]
    drafter = NgramDrafter()
    assert (drafts_of(tokens, 1, drafter=drafter), drafter.match_length) == ([10], 4)


def test_the_latest_of_equal_matches_wins():
    assert drafts_of([3, 4, 10, 3, 4, 20, 3, 4], 1) == [20]


def test_repetition_is_expected_to_go_on():
    assert drafts_of([7, 1, 2, 3, 1, 2, 3], 8) == [1, 2, 3, 1, 2, 3, 1, 2]
    assert drafts_of([5, 5, 5], 5) == [5] * 5


def test_nothing_is_drafted_from_a_stop_token_on():
    assert drafts_of([7, 1, 2, 3, 1, 2, 3], 8, drafter=NgramDrafter(0, [3])) == [1, 2]


def test_a_long_match_is_kept_and_counts_as_the_longest():
    text = random_tokens(200, 1000, 2)
    # The last four tokens also stand at a later place, but the match from the beginning is far longer.
    tokens = [*text, *text[96:100], 5000, *text[:100]]
    drafter = NgramDrafter()
    assert drafts_of(tokens, 3, step=1, drafter=drafter) == text[100:103]
    assert drafter.match_length == LONGEST_MATCH


def test_a_very_long_prompt_is_taken_in_over_several_steps():
    text = (random_tokens(10_000, 30_000, 3) * 2)[:15_000]
    drafter = NgramDrafter()
    assert [drafts_of(text, 4, drafter=drafter) for _ in range(4)] == [[], [], [], text[5000:5004]]


def test_places_are_found_far_back_although_the_index_is_bounded():
    """A reply of as many tokens as the longest contexts have, to a short prompt."""
    text = random_tokens(100_000, 50_000, 4)
    assert drafts_of([*text, *text[60_000:60_003]], 3, step=4096) == text[60_003:60_006]


@pytest.mark.parametrize("short", range(1, 5))
def test_every_drafter_needs_its_tokens(short: int):
    fields = [[NgramDrafter()], [np.zeros(3, np.int32)], [3], [1], [0.0]]
    fields[short] = []
    with pytest.raises(NativeError, match="every drafter needs"):
        draft_from_text(*fields, 1, 1, FREE)
    with pytest.raises(NativeError, match="fewer tokens than it is said to have"):
        draft_from_text([NgramDrafter()], [np.zeros(3, np.int32)], [4], [1], [0.0], 1, 1, FREE)


@given(
    tokens=st.lists(st.integers(0, 3), min_size=1, max_size=120),
    step=st.integers(1, 20),
    count=st.integers(1, 20),
)
def test_a_draft_copies_what_followed_an_earlier_occurrence(tokens: list[int], step: int, count: int):
    drafter = NgramDrafter()
    drafts, length = drafts_of(tokens, count, step, drafter), drafter.match_length
    if length == 0:
        assert drafts == []
        assert tuple(tokens[-2:]) not in list(pairwise(tokens[:-1]))
        return
    sources = [
        source
        for source in range(length, len(tokens))
        if tokens[source - length : source] == tokens[-length:]
    ]
    assert drafts in [continued(tokens, source, len(drafts)) for source in sources]


def continued(tokens: list[int], source: int, count: int) -> list[int]:
    """`count` tokens copied one by one from `source`, which may run into the copies."""
    copy = list(tokens)
    for index in range(count):
        copy.append(copy[source + index])
    return copy[len(tokens) :]


@settings(deadline=None)
@given(
    texts=st.lists(st.lists(st.integers(0, 4), min_size=5, max_size=150), min_size=1, max_size=5),
    sizes=st.lists(st.integers(1, 30), min_size=3, max_size=30),
    seen=st.lists(st.tuples(st.integers(1, 600), st.floats(1e-3, 1.0)), max_size=8),
    limit=st.integers(0, 16),
    least_chance=st.sampled_from([0.0, 0.5, 0.9]),
    num_prompt_tokens=st.integers(0, 40),
)
def test_the_drafts_of_a_step_are_those_of_the_reference(
    texts: list[list[int]],
    sizes: list[int],
    seen: list[tuple[int, float]],
    limit: int,
    least_chance: float,
    num_prompt_tokens: int,
):
    costs = StepCosts()
    for num_tokens, seconds in seen:
        costs.observe(num_tokens, seconds)
    drafters, speculators = [NgramDrafter() for _ in texts], [NgramSpeculator() for _ in texts]
    num_decodes, end = len(texts), 0
    for size in sizes:
        end += size
        tokens = [np.array(text[:end], dtype=np.int32) for text in texts]
        ends = [len(own) for own in tokens]
        arguments = num_decodes + num_prompt_tokens, num_decodes, costs
        chances = []
        for speculator, own in zip(speculators, tokens, strict=True):
            speculator.update(own)
            of_sequence = speculator.chances(limit)
            chances.append(of_sequence if of_sequence and of_sequence[0] >= least_chance else [])
        counts = plan_drafts(chances, *arguments)
        expected = [speculator.propose(n) for speculator, n in zip(speculators, counts, strict=True)]
        limits, least = [limit] * num_decodes, [least_chance] * num_decodes
        assert draft_from_text(drafters, tokens, ends, limits, least, *arguments) == expected
