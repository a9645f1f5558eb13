"""A full context loses its older half, or ends the answer; whatever happens in between."""

from __future__ import annotations

import pytest

from tests.engine.toy import ToyModel, Windows, expected_tokens, run_all, toy_engine, toy_request

pytestmark = pytest.mark.native


@pytest.mark.parametrize("num_keep", [0, 1, 5, 16, 24, 48, 62, 63])
@pytest.mark.parametrize(
    ("num_prompt", "windows"),
    [(1, (None, 50, 1)), (30, (None,)), (30, (None, 20)), (63, (33,)), (64, (None,))],
)
def test_generation_goes_on_past_a_full_context(num_keep: int, num_prompt: int, windows: Windows):
    engine = toy_engine(ToyModel(windows=windows), num_blocks=4 * len(windows))
    prompt = list(range(num_prompt))
    engine.submit(toy_request("r", prompt, 200, context_length=64, shift=True, num_keep=num_keep))
    results = run_all(engine)
    assert results.last["r"].finish_reason == "length"
    wanted = expected_tokens(prompt, 200, context_length=64, num_keep=num_keep, windows=windows)
    assert results.tokens["r"] == wanted


@pytest.mark.parametrize(
    ("windows", "num_blocks", "context"),
    [
        ((None,), 4, 64),
        ((None, 40), 20, 176),  # a window of 4 blocks is moved to as many others, and begins within one more
        ((None, 40), 8, 64),  # so wide a window keeps all of a context that is so short
        ((1,), 3, 1000),
    ],
)
def test_a_context_as_large_as_all_memory_shifts_in_place(windows: Windows, num_blocks: int, context: int):
    engine = toy_engine(ToyModel(windows=windows), num_blocks=num_blocks)
    engine.submit(toy_request("r", [1] * 10, 1200, shift=True, num_keep=3))
    wanted = expected_tokens([1] * 10, 1200, context_length=context, num_keep=3, windows=windows)
    assert run_all(engine).tokens["r"] == wanted


@pytest.mark.parametrize("fields", [{}, {"shift": True, "can_shift": False}])
def test_without_shift_the_answer_ends_with_the_context(fields: dict[str, bool]):
    can_shift = fields.pop("can_shift", True)
    engine = toy_engine(ToyModel(can_shift=can_shift))
    engine.submit(toy_request("r", [1] * 10, None, context_length=40, **fields))
    results = run_all(engine)
    assert results.last["r"].finish_reason == "length"
    assert results.tokens["r"] == expected_tokens([1] * 10, 30)


def test_shifted_sequences_that_are_preempted_come_to_the_same_output():
    engine = toy_engine(num_blocks=14)
    prompts = {str(i): [i] * (10 + i) for i in range(5)}
    for name, prompt in prompts.items():
        engine.submit(toy_request(name, prompt, 150, context_length=48 + int(name), shift=True, num_keep=7))
    results = run_all(engine)
    assert engine.stats().models[0].num_preemptions > 0
    for name, prompt in prompts.items():
        expected = expected_tokens(prompt, 150, context_length=48 + int(name), num_keep=7)
        assert results.tokens[name] == expected


def test_a_shift_changes_nothing_for_those_who_share_the_prefix():
    engine = toy_engine()
    prompt = [3] * 40
    for name in "ab":
        engine.submit(toy_request(name, prompt, 60, context_length=64, shift=True))
    engine.submit(toy_request("c", prompt, 60))
    results = run_all(engine)
    shifted = expected_tokens(prompt, 60, context_length=64)
    assert results.tokens["a"] == results.tokens["b"] == shifted
    assert results.tokens["c"] == expected_tokens(prompt, 60)
    engine.submit(toy_request("d", [*prompt, *shifted], 5))
    assert run_all(engine).tokens["d"] == expected_tokens([*prompt, *shifted], 5)
