"""Drafts are verified only where that pays."""

from __future__ import annotations

import random
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna._native import NgramDrafter, StepCosts, draft_from_text, plan_drafts
from puna.engine.sequences.sequence import MAX_DRAFT

pytestmark = pytest.mark.native

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1000)


def costs_of(
    per_token: float, *, fewest: int = 1, most: int = 1000, untried: tuple[int, ...] = ()
) -> StepCosts:
    """A step takes 1 s and `per_token` more for each token after the first; `most` tokens at most."""
    costs = StepCosts()
    for size in SIZES:
        if size >= fewest and size not in untried:
            costs.observe(size, 1 + per_token * (size - 1) if size <= most else 1e9)
    return costs


FREE = costs_of(0.0)
CHEAP = costs_of(0.1)
FULL = costs_of(1.0)


class Run:
    """Speculates over a text that is known in advance, alone, and counts."""

    def __init__(self, prompt: list[int], costs: StepCosts) -> None:
        self.tokens = list(prompt)
        self.costs = costs
        self.drafter = NgramDrafter()
        self.num_steps = self.num_drafted = self.num_accepted = 0

    def generate(self, text: list[int]) -> Run:
        rest = list(text)
        while rest:
            self._step(rest)
        return self

    def _step(self, rest: list[int]) -> None:
        tokens = np.array(self.tokens, dtype=np.int32)
        limit = min(MAX_DRAFT, len(rest) - 1)
        [drafts] = draft_from_text([self.drafter], [tokens], [len(tokens)], [limit], [0.0], 1, 1, self.costs)
        assert len(drafts) <= limit
        num_right = 0
        while num_right < len(drafts) and rest[num_right] == drafts[num_right]:
            num_right += 1
        self.tokens += rest[: num_right + 1]
        del rest[: num_right + 1]
        self.num_steps += 1
        self.num_drafted += len(drafts)
        self.num_accepted += num_right


def random_text(count: int, vocabulary: int = 50_000, seed: int = 0) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(vocabulary) for _ in range(count)]


def test_a_quotation_takes_a_fraction_of_the_steps():
    text = random_text(300)
    run = Run(text, CHEAP).generate(text)
    assert run.num_steps < 60
    assert run.num_accepted > 0.95 * run.num_drafted


def test_random_text_is_not_speculated_on():
    run = Run(random_text(300), CHEAP).generate(random_text(300, seed=1))
    assert run.num_drafted < 5


def test_drafts_that_fail_are_given_up_and_taken_up_again():
    # Pairs repeat all the time, but what follows them is as good as random.
    misleading = random_text(2000, vocabulary=30)
    run = Run([], CHEAP).generate(misleading[:1000])
    before = run.num_drafted
    run.generate(misleading[1000:])
    assert run.num_drafted - before < 60

    quoted = random_text(200, seed=5)
    run.generate(quoted)
    steps = run.num_steps
    run.generate(quoted)
    assert run.num_steps - steps < 80


def test_tokens_at_full_price_never_pay():
    text = random_text(100)
    assert Run(text, FULL).generate(text).num_drafted == 0


def test_without_known_costs_nothing_is_verified():
    certain = [1.0] * 8
    assert plan_drafts([certain], 1, 1, StepCosts()) == [0]
    assert plan_drafts([certain], 1, 1, costs_of(0.0, fewest=2)) == [0]
    assert plan_drafts([certain] * 2, 2, 2, costs_of(0.0, fewest=2, most=4)) == [1, 1]


def test_sizes_that_were_not_tried_are_if_drafts_are_likely():
    costs = costs_of(5.0, untried=(2, 3))
    assert plan_drafts([[0.9, 0.8]], 1, 1, costs) == [2]
    assert plan_drafts([[0.4, 0.3]], 1, 1, costs) == [0]
    assert plan_drafts([[0.9, 0.8]], 1, 1, costs_of(5.0)) == [0]


def test_sure_drafts_are_verified_together():
    assert plan_drafts([[0.99**i for i in range(1, 17)]], 1, 1, CHEAP) == [16]
    assert plan_drafts([[0.5, 0.25, 0.12, 0.06]], 1, 1, FREE) == [4]
    assert plan_drafts([[0.5, 0.25, 0.12, 0.06]], 1, 1, CHEAP)[0] in (1, 2, 3)
    assert plan_drafts([[0.05]], 1, 1, CHEAP) == [0]
    assert plan_drafts([], 100, 0, CHEAP) == []


def test_one_sequence_does_not_hold_up_sixteen():
    quoting = [0.95**i for i in range(1, 17)]
    alone = plan_drafts([quoting], 1, 1, CHEAP)[0]
    # Among sixteen a step costs 2.5 s, a draft 4 % more, for everybody.
    [among_others, *rest] = plan_drafts([quoting] + [[]] * 15, 16, 16, CHEAP)
    assert among_others < alone / 4
    assert rest == [0] * 15


def test_a_prompt_in_the_step_does_not_make_drafts_cheaper():
    unsure = [0.15]
    assert plan_drafts([unsure], 1, 1, costs_of(0.2)) == [0]
    assert plan_drafts([unsure], 257, 1, costs_of(0.2)) == [0]


def test_the_surest_drafts_of_all_sequences_go_first():
    costs = costs_of(0.1, most=6)
    assert plan_drafts([[0.3, 0.1], [0.99, 0.98], [0.6]], 3, 3, costs) == [0, 2, 1]


@given(
    rates=st.lists(st.lists(st.floats(0.0, 1.0), max_size=4), min_size=1, max_size=3),
    per_token=st.floats(0.0, 1.5),
    num_prefill=st.integers(0, 300),
)
def test_the_plan_is_never_worse_than_none(rates: list[list[float]], per_token: float, num_prefill: int):
    chances = [np.cumprod(of_sequence).tolist() for of_sequence in rates]
    costs, num_decodes = costs_of(per_token), len(chances)
    counts = plan_drafts(chances, num_decodes + num_prefill, num_decodes, costs)
    assert all(0 <= count <= len(c) for count, c in zip(counts, chances, strict=True))
    gain = sum(log(1 + sum(c[:count])) for count, c in zip(counts, chances, strict=True))
    longer = 1 + sum(counts) * per_token / (1 + per_token * (num_decodes - 1))
    assert gain >= num_decodes * log(longer) - 1e-9
    assert counts == plan_drafts(chances, num_decodes + num_prefill, num_decodes, costs)
