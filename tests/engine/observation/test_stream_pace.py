"""What streams are used to, whatever prompts do to their steps."""

from __future__ import annotations

import pytest

from puna._native import StepCosts
from puna.engine.observation.stream_pace import StreamPace

pytestmark = pytest.mark.unit


def test_nothing_is_known_at_first():
    assert StreamPace(StepCosts()).estimate(4) == 0


def test_longer_and_longer_steps_with_prompts_do_not_count():
    costs = StepCosts()
    pace = StreamPace(costs)
    for _ in range(20):
        costs.observe(8, 0.007)
        pace.observe(8, 0.007)
    for i in range(100):
        costs.observe(40, 0.014 + 0.001 * i)
    assert pace.estimate(8) == pytest.approx(0.007)
    assert costs.estimate(8) > 0.014


def test_more_streams_take_longer_in_proportion_to_what_steps_cost():
    costs = StepCosts()
    pace = StreamPace(costs)
    for num_tokens, seconds in ((4, 0.004), (8, 0.006)):
        costs.observe(num_tokens, seconds)
    pace.observe(4, 0.002)
    assert pace.estimate(8) == pytest.approx(0.003)


def test_before_streams_went_on_alone_they_are_taken_for_less_than_any_step_so_far():
    costs = StepCosts()
    costs.observe(256, 0.256)
    assert 0 < StreamPace(costs).estimate(4) < 0.04


def test_it_follows_what_changes_but_not_what_was_held_up_once():
    pace = StreamPace(StepCosts())
    for _ in range(50):
        pace.observe(4, 0.002)
    pace.observe(4, 10.0)
    assert pace.estimate(4) < 0.0025
    for _ in range(50):
        pace.observe(4, 0.006)
    assert pace.estimate(4) == pytest.approx(0.006, rel=0.02)
