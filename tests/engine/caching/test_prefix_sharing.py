"""What was computed once is used again: later, at the same time, and only by those who may."""

from __future__ import annotations

import pytest

from tests.engine.toy import ToyModel, expected_tokens, run_all, toy_engine, toy_request

pytestmark = pytest.mark.native

PREFIX = [i % 89 for i in range(160)]


def computed_tokens(model: ToyModel) -> int:
    return sum(map(sum, model.steps))


def cached(results, name: str) -> int:
    return results.last[name].stats.cached_tokens


def test_a_prompt_that_comes_again_costs_one_token():
    model = ToyModel()
    engine = toy_engine(model)
    for name in ("first", "again"):
        engine.submit(toy_request(name, PREFIX, 1))
        results = run_all(engine)
        assert results.tokens[name] == expected_tokens(PREFIX, 1)
    assert cached(results, "again") == len(PREFIX) - 1
    assert model.steps[-1] == [1]


def test_a_prompt_that_continues_within_a_block_uses_every_token():
    model = ToyModel()
    engine = toy_engine(model)
    engine.submit(toy_request("first", PREFIX[:150], 7))
    answer = run_all(engine).tokens["first"]
    prompt = [*PREFIX[:150], *answer[:5], 7, 8, 9]
    engine.submit(toy_request("next", prompt, 3))
    results = run_all(engine)
    assert results.tokens["next"] == expected_tokens(prompt, 3)
    assert cached(results, "next") == 155


def test_a_block_that_goes_on_differently_is_copied_not_changed():
    engine = toy_engine()
    prompts = {"a": PREFIX, "b": [*PREFIX[:151], 1, 2, 3], "c": PREFIX}
    for name, prompt in prompts.items():
        engine.submit(toy_request(name, prompt, 20))
        results = run_all(engine)
        assert results.tokens[name] == expected_tokens(prompt, 20)
    assert cached(results, "c") == len(PREFIX) - 1


def test_requests_at_the_same_time_compute_their_prefix_once():
    model = ToyModel()
    engine = toy_engine(model)
    prompts = {str(i): [*PREFIX, i, i + 1, i + 2] for i in range(16)}
    for name, prompt in prompts.items():
        engine.submit(toy_request(name, prompt, 4))
    results = run_all(engine)
    for name, prompt in prompts.items():
        assert results.tokens[name] == expected_tokens(prompt, 4)
    assert computed_tokens(model) == len(PREFIX) + 16 * (3 + 3)
    assert sorted(cached(results, name) for name in prompts) == [0] + 15 * [len(PREFIX)]


def test_completions_of_one_prompt_share_all_of_it():
    model = ToyModel()
    engine = toy_engine(model)
    prompt = PREFIX[:150]
    for i in range(8):
        engine.submit(toy_request(str(i), prompt, 2))
    results = run_all(engine)
    assert all(results.tokens[str(i)] == expected_tokens(prompt, 2) for i in range(8))
    assert computed_tokens(model) == 150 + 7 + 8
    assert engine.stats().models[0].used_kv_bytes == 0


def test_when_the_first_of_them_is_cancelled_another_goes_on():
    engine = toy_engine(prefill_tokens=32)
    for name in "abc":
        engine.submit(toy_request(name, PREFIX, 3))
    engine.step(), engine.step()
    engine.cancel("a")
    results = run_all(engine)
    assert results.tokens["b"] == results.tokens["c"] == expected_tokens(PREFIX, 3)


def test_other_salts_share_nothing():
    model = ToyModel()
    engine = toy_engine(model)
    for name, salt in (("a", ""), ("b", "x"), ("c", "y"), ("d", "x")):
        engine.submit(toy_request(name, PREFIX, 1, cache_salt=salt))
        results = run_all(engine)
        assert cached(results, name) == (len(PREFIX) - 1 if name == "d" else 0)


def test_who_does_not_want_the_cache_computes_everything():
    model = ToyModel()
    engine = toy_engine(model)
    for name in "ab":
        engine.submit(toy_request(name, PREFIX, 1, cache_prompt=False))
        assert cached(run_all(engine), name) == 0
    assert computed_tokens(model) == 2 * len(PREFIX)


def test_memory_of_cached_prefixes_is_there_for_others():
    engine = toy_engine(num_blocks=12)
    for i in range(20):
        prompt = [i, *PREFIX[:100]]
        engine.submit(toy_request(str(i), prompt, 40))
        assert run_all(engine).tokens[str(i)] == expected_tokens(prompt, 40)
    assert engine.stats().models[0].num_preemptions == 0


def test_the_idle_cache_can_be_dropped():
    engine = toy_engine()
    engine.submit(toy_request("a", PREFIX, 3))
    run_all(engine)
    engine.trim()
    stats = engine.stats().models[0]
    assert stats.cached_kv_bytes == stats.committed_kv_bytes > 0
    engine.trim_kv()
    assert engine.stats().models[0].committed_kv_bytes == 0
    engine.check()
    engine.submit(toy_request("b", PREFIX, 3))
    assert run_all(engine).tokens["b"] == expected_tokens(PREFIX, 3)


def test_a_preempted_sequence_finds_what_it_had_computed():
    engine = toy_engine(num_blocks=13)
    engine.submit(toy_request("early", [5] * 16, 100))
    engine.submit(toy_request("late", [6] * 100, 60))
    results = run_all(engine)
    assert engine.stats().models[0].num_preemptions > 0
    assert results.tokens["late"] == expected_tokens([6] * 100, 60)
    assert cached(results, "late") == 0, "of the prompt, nothing was there at first"
