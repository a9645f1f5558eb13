"""What a step will take, from what steps took."""

from __future__ import annotations

import random
from math import inf

import pytest

from puna._native import StepCosts

pytestmark = pytest.mark.unit


def test_nothing_is_known_at_first():
    assert StepCosts().estimate(1) is None
    assert StepCosts().fewest_tokens == inf


def test_estimates_lie_on_lines_between_observations_and_go_on_in_proportion():
    costs = StepCosts()
    for num_tokens, seconds in ((16, 0.020), (1, 0.002), (8, 0.004)):
        costs.observe(num_tokens, seconds)
    assert costs.fewest_tokens == 1
    assert costs.estimate(1) == pytest.approx(0.002)
    assert costs.estimate(8) == pytest.approx(0.004)
    assert costs.estimate(12) == pytest.approx(0.012)
    assert costs.estimate(32) == pytest.approx(0.040)


def test_they_follow_what_changes_but_not_what_was_held_up_once():
    costs = StepCosts()
    for _ in range(50):
        costs.observe(4, 0.001)
    costs.observe(4, 10.0)
    assert costs.estimate(4) < 0.0013
    for _ in range(50):
        costs.observe(4, 0.003)
    assert costs.estimate(4) == pytest.approx(0.003, rel=0.01)


def test_what_slows_steps_of_one_size_down_slows_the_others():
    costs = StepCosts()
    for num_tokens, seconds in ((1, 0.002), (8, 0.004), (64, 0.020)):
        for _ in range(20):
            costs.observe(num_tokens, seconds)
    ratio = costs.estimate(8) / costs.estimate(1)
    for _ in range(100):
        costs.observe(1, 0.006)
    assert costs.estimate(1) == pytest.approx(0.006, rel=0.01)
    assert ratio / 2 < costs.estimate(8) / costs.estimate(1) < ratio


def test_what_was_held_up_once_is_not_believed_for_ever():
    costs = StepCosts()
    costs.observe(64, 0.020)
    costs.observe(1, 0.002)
    costs.observe(4, 0.100)
    for _ in range(400):
        costs.observe(1, 0.002)
    assert costs.estimate(4) < 0.004
    assert costs.estimate(64) > 0.010
    assert [n for n in (1, 4, 8, 64) if costs.has_seen(n)] == [1, 64]


def test_ups_and_downs_of_one_size_even_out_for_the_others():
    costs = StepCosts()
    costs.observe(64, 0.020)
    source = random.Random(1)
    for _ in range(2000):
        costs.observe(1, 0.002 * source.uniform(0.5, 2.0))
    assert 0.010 < costs.estimate(64) < 0.040
