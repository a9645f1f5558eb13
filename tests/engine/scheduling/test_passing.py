"""Short prompts pass long ones within a bound; the long ones get on, and nothing is computed twice."""

from __future__ import annotations

from math import ceil

import pytest

from puna.engine import EngineCore
from tests.engine.toy import ToyModel, expected_tokens, run_all, toy_engine, toy_request

pytestmark = pytest.mark.native

CHUNK = 256  # prompt tokens of a step where nothing streams
LONG = [i % 90 for i in range(4096)]


def long_model() -> ToyModel:
    return ToyModel(context_length=5000)


def short(name: str, num_tokens: int = 100, **fields: object) -> object:
    prompt = [ord(name[0]) - 32] + [(7 * i + len(name)) % 90 for i in range(num_tokens - 1)]
    return toy_request(name, prompt, 1, **fields)


def steps_until_end(engine: EngineCore, request_id: str) -> int:
    """Of the request; so many steps from now."""
    for num_steps in range(1, 1000):
        if any(output.request_id == request_id and output.finish_reason for output in engine.step()):
            return num_steps
    raise AssertionError("it does not end")


@pytest.mark.parametrize("num_tokens", [2, 100, 128, 129, 1000])
def test_the_shortest_prompt_has_half_of_every_step(num_tokens: int):
    engine = toy_engine(long_model())
    engine.submit(toy_request("long", LONG, 1))
    engine.step()
    engine.submit(short("a", num_tokens))
    assert steps_until_end(engine, "a") <= ceil(num_tokens / (CHUNK // 2))


def test_the_longest_is_at_most_twice_as_long_in_coming_however_many_pass_it():
    engine = toy_engine(long_model())
    engine.submit(toy_request("long", LONG, 1))
    for index in range(4 * len(LONG) // CHUNK):
        engine.submit(short(chr(40 + index % 50) + "x" * index))
        if any(output.request_id == "long" for output in engine.step()):
            break
    else:
        raise AssertionError("it does not get on")
    assert index + 1 <= 2 * len(LONG) / CHUNK


def test_a_step_is_full_whoever_shares_it():
    model = long_model()
    engine = toy_engine(model)
    engine.submit(toy_request("long", LONG, 1))
    for name in "abcdef":
        engine.submit(short(name))
    results = run_all(engine)
    total = [sum(step) for step in model.steps]
    assert all(tokens > CHUNK - 16 for tokens in total[:-1])
    assert results.tokens["long"] == expected_tokens(LONG, 1)


def test_what_short_ones_share_with_the_long_one_is_computed_once_in_full_steps():
    model = long_model()
    engine = toy_engine(model)
    engine.submit(toy_request("long", LONG, 1))
    for index in range(4):
        engine.submit(toy_request(str(index), [*LONG[:2000], 90 + index], 1))
    run_all(engine)
    assert sum(map(sum, model.steps)) <= len(LONG) + 4 * 16
    assert len(model.steps) <= ceil(len(LONG) / CHUNK) + 2


def test_small_steps_beside_streams_take_turns():
    model = long_model()
    engine = toy_engine(model, unnoticed_s=0.0, max_slowdown=1.0, min_prefill_tokens=8)
    engine.submit(toy_request("stream", [1], None, num_draft=0))
    for _ in range(3):
        engine.step()
    engine.submit(toy_request("long", LONG, 1))
    engine.step()
    engine.submit(short("a", 80))
    before = len(model.steps)
    assert steps_until_end(engine, "a") <= 2 * 80 / 8 + 1
    assert {tuple(step) for step in model.steps[before:]} <= {(1, 8), (1, 7)}


def test_a_lower_priority_does_not_pass():
    engine = toy_engine(long_model())
    engine.submit(toy_request("long", LONG, 1, priority=1))
    engine.step()
    engine.submit(short("a"))
    assert steps_until_end(engine, "a") >= len(LONG) / CHUNK - 1


def test_equals_go_one_after_the_other():
    engine = toy_engine(long_model())
    for name in "abc":
        engine.submit(short(name, 512))
    assert [steps_until_end(engine, name) for name in "abc"] == [2, 2, 2]
