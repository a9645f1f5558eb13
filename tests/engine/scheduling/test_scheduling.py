"""Streams keep streaming, memory that is too small only delays, models take turns, nobody is overtaken."""

from __future__ import annotations

import pytest

from puna.engine.caching.cache_policy import PrefixPolicy
from puna.engine.sequences.sequence import Sequence
from tests.engine.toy import (
    BLOCK_BYTES,
    Results,
    ToyModel,
    expected_tokens,
    run_all,
    toy_engine,
    toy_request,
)

pytestmark = pytest.mark.native


def test_a_long_prompt_never_stalls_running_streams():
    model = ToyModel()
    engine = toy_engine(model, unnoticed_s=0.0, max_slowdown=6.0, min_prefill_tokens=16)
    for name in "abc":
        engine.submit(toy_request(name, [ord(name) - 90], None))
    engine.step(), engine.step()
    prompt = [i % 90 for i in range(900)]
    engine.submit(toy_request("long", prompt, 1))
    for _ in range(56):  # three streams take 3 ms, so that 16 tokens more are not quite within 6 times that
        outputs = engine.step()
        assert {output.request_id for output in outputs} == {"a", "b", "c"}
        assert all(len(output.tokens) == 1 for output in outputs)
    finished = [output for output in engine.step() if output.request_id == "long"]
    assert [output.tokens for output in finished] == [expected_tokens(prompt, 1)]
    assert {tuple(step) for step in model.steps[2:-1]} == {(1, 1, 1, 16)}


def test_prompts_take_what_the_streams_can_spare():
    model = ToyModel()
    engine = toy_engine(model, unnoticed_s=0.0, max_slowdown=10.0)
    engine.submit(toy_request("stream", [1], None))
    engine.submit(toy_request("other", [2], None))
    prompt = [i % 90 for i in range(900)]
    for _ in range(3):
        engine.step()
    engine.submit(toy_request("long", prompt, 1))
    for _ in range(30):
        engine.step()
    assert model.steps[-1] == [1, 1, 16], "18 ms are within ten times 2 ms, 34 ms are not"


def test_a_step_that_nobody_notices_may_be_long():
    model = ToyModel()
    engine = toy_engine(model, unnoticed_s=0.067, max_slowdown=1.0)
    engine.submit(toy_request("stream", [1], None))
    engine.submit(toy_request("other", [2], None))
    for _ in range(3):
        engine.step()
    engine.submit(toy_request("long", [i % 90 for i in range(900)], 1))
    for _ in range(3):
        engine.step()
    assert model.steps[-1] == [1, 1, 64]


def test_a_prompt_alone_is_computed_in_large_chunks():
    model = ToyModel()
    engine = toy_engine(model, prefill_tokens=100)
    engine.submit(toy_request("r", [1] * 250, 2))
    run_all(engine)
    assert model.steps == [[96], [96], [58], [1]], "whole blocks, which others can share"


def test_short_prompts_share_a_step():
    model = ToyModel()
    engine = toy_engine(model, prefill_tokens=100)
    for token, (name, length) in enumerate((("a", 40), ("b", 50), ("c", 30))):
        engine.submit(toy_request(name, [token] * length, 1))
    run_all(engine)
    assert model.steps == [[40, 30, 16], [34]]


def test_a_step_runs_on_as_many_threads_as_any_of_its_requests_wants():
    model = ToyModel()
    engine = toy_engine(model)
    for name, max_tokens, num_threads in (("a", 4, 2), ("b", 3, 5), ("c", 2, None)):
        engine.submit(toy_request(name, [1], max_tokens, num_threads=num_threads))
    run_all(engine)
    assert model.threads == [None, None, 5, 2]


def test_max_running_bounds_the_batch():
    model = ToyModel()
    engine = toy_engine(model, max_running=3)
    for index in range(8):
        engine.submit(toy_request(str(index), [index], 4))
    run_all(engine)
    assert max(map(len, model.steps)) == 3


def test_a_pool_too_small_for_all_delays_but_loses_nothing():
    engine = toy_engine(num_blocks=10)
    requests = {str(i): ([i] * (10 + 7 * i), 70) for i in range(6)}
    for name, (prompt, count) in requests.items():
        engine.submit(toy_request(name, prompt, count))
    results = run_all(engine)
    assert engine.stats().models[0].num_preemptions > 0
    for name, (prompt, count) in requests.items():
        assert results.tokens[name] == expected_tokens(prompt, count)


def test_the_latest_arrival_is_preempted_and_finishes_last():
    engine = toy_engine(num_blocks=8)
    results = Results()
    for name in ("first", "second", "third"):
        engine.submit(toy_request(name, [3] * 16, 80))
    run_all(engine, results)
    assert list(results.last) == ["first", "second", "third"]


def test_the_latest_arrival_of_any_model_is_preempted():
    engine, _ = two_models(num_blocks=12)
    engine.submit(toy_request("early", [1] * 16, 150))
    engine.submit(toy_request("late", [2] * 16, 40, model_id="other"))
    results = run_all(engine)
    assert {model.model_id: model.num_preemptions > 0 for model in engine.stats().models} == {
        "toy": False,
        "other": True,
    }
    assert results.tokens["late"] == expected_tokens([2] * 16, 40, salt=1)


def test_who_would_be_preempted_at_once_is_not_started():
    engine = toy_engine(num_blocks=4)
    engine.submit(toy_request("growing", [1] * 16, 17))
    engine.step()
    engine.submit(toy_request("large", [2] * 48, 2))
    results = run_all(engine)
    assert list(results.last) == ["growing", "large"]
    assert engine.stats().models[0].num_preemptions == 0


def test_a_prompt_may_fill_all_memory():
    engine = toy_engine(num_blocks=4)
    engine.submit(toy_request("r", [1] * 64, None))
    assert run_all(engine).tokens["r"] == expected_tokens([1] * 64, 1)


def test_nobody_is_overtaken_while_waiting_for_memory():
    engine = toy_engine(num_blocks=10)
    engine.submit(toy_request("running", [1] * 16, 60))
    engine.step()
    engine.submit(toy_request("large", [2] * 130, 5))
    engine.submit(toy_request("small", [3], 5))
    results = run_all(engine)
    assert list(results.last) == ["running", "large", "small"]


def test_who_waits_for_memory_is_left_alone_until_something_changes(monkeypatch: pytest.MonkeyPatch):
    admitted: list[str] = []
    admit = PrefixPolicy.admit

    def counting(policy: PrefixPolicy, sequence: Sequence) -> bool:
        admitted.append(sequence.id)
        return admit(policy, sequence)

    monkeypatch.setattr(PrefixPolicy, "admit", counting)
    engine = toy_engine(num_blocks=12)
    for name in ("a", "b"):
        engine.submit(toy_request(name, [ord(name) - 90] * 65, 40))
    engine.submit(toy_request("waits", [1] * 100, 1))
    engine.step()
    assert admitted == ["a", "b", "waits"]
    for _ in range(15):
        engine.step()
    assert admitted == ["a", "b", "waits"]
    engine.cancel("a")
    engine.step()
    assert admitted == ["a", "b", "waits", "waits"]
    assert run_all(engine).tokens["waits"] == expected_tokens([1] * 100, 1)


def test_a_sequence_ends_where_memory_ends():
    engine = toy_engine(num_blocks=4)
    engine.submit(toy_request("r", [1] * 10, None))
    results = run_all(engine)
    assert results.tokens["r"] == expected_tokens([1] * 10, 54)
    assert results.last["r"].finish_reason == "length"


def test_cancel_frees_the_blocks_at_once():
    engine = toy_engine()
    for token, name in enumerate("ab"):
        engine.submit(toy_request(name, [token] * 100, None))
    for _ in range(5):
        engine.step()
    held = engine.stats().models[0].used_kv_bytes
    engine.cancel("a")
    assert engine.stats().models[0].used_kv_bytes == held / 2
    outputs = {output.request_id: output for output in engine.step()}
    assert outputs["a"].finish_reason == "cancelled"
    assert len(outputs["b"].tokens) == 1
    engine.cancel("a")  # finished: ignored
    engine.cancel("b")
    assert [output.request_id for output in run_all(engine).last.values()] == ["b"]
    assert engine.stats().models[0].used_kv_bytes == 0


def test_a_waiting_request_can_be_cancelled():
    engine = toy_engine(max_running=1)
    for name in "ab":
        engine.submit(toy_request(name, [1], 5))
    engine.step()
    engine.cancel("b")
    results = run_all(engine)
    assert results.last["b"].finish_reason == "cancelled"
    assert results.tokens["b"] == []


def two_models(num_blocks: int = 1000, **settings: int):
    """An engine with "toy", "other", and the model of the latter."""
    toy = ToyModel()
    other = ToyModel(salt=1, block_bytes=3 * BLOCK_BYTES, clock=toy.clock)
    engine = toy_engine(toy, num_blocks=num_blocks, **settings)
    engine.attach_model("other", other)
    return engine, other


def test_two_models_have_equal_shares_of_the_time():
    engine, _ = two_models()
    for name, model_id in (("a", "toy"), ("b", "other"), ("c", "other")):
        engine.submit(toy_request(name, [1, 2, 3], None, model_id=model_id))
    turns = [{output.request_id for output in engine.step()} for _ in range(60)]
    # "other" takes 2 ms for a step of its two streams, "toy" 1 ms.
    assert turns.count({"a"}) == pytest.approx(40, abs=3)
    assert turns.count({"b", "c"}) == pytest.approx(20, abs=3)


def test_the_time_is_shared_by_weight():
    toy = ToyModel()
    engine = toy_engine(toy)
    engine.attach_model("heavy", ToyModel(clock=toy.clock), share=3.0)
    for model_id in ("toy", "heavy"):
        engine.submit(toy_request(model_id, [1], None, model_id=model_id))
    turns = [output.request_id for _ in range(80) for output in engine.step()]
    assert turns.count("heavy") == pytest.approx(60, abs=2)


def test_a_model_that_was_idle_has_no_claim_to_the_time():
    engine, _ = two_models()
    engine.submit(toy_request("a", [1], None))
    for _ in range(50):
        engine.step()
    engine.submit(toy_request("b", [1], None, model_id="other"))
    turns = [output.request_id for _ in range(20) for output in engine.step()]
    assert turns.count("a") == pytest.approx(10, abs=1)


def test_the_prompt_of_one_model_lets_the_other_stream():
    engine, other = two_models(unnoticed_s=0.0, min_prefill_tokens=16)
    engine.submit(toy_request("stream", [1], None))
    engine.step()
    engine.submit(toy_request("long", [1] * 160, 1, model_id="other"))
    outputs = [output for _ in range(170) for output in engine.step()]
    assert other.steps == [[16]] * 10
    assert len([output for output in outputs if output.request_id == "stream"]) == 160


def test_higher_priorities_go_first_and_are_preempted_last():
    engine = toy_engine(num_blocks=8)
    for name, priority in (("low", -1), ("normal", 0), ("high", 1)):
        engine.submit(toy_request(name, [priority + 1] * 16, 80, priority=priority))
    results = run_all(engine)
    assert list(results.last) == ["high", "normal", "low"]


def test_a_higher_priority_takes_the_place_of_a_lower_one():
    engine = toy_engine(max_running=1)
    engine.submit(toy_request("low", [1], 50))
    for _ in range(10):
        engine.step()
    engine.submit(toy_request("high", [2], 5, priority=1))
    results = run_all(engine)
    assert list(results.last) == ["high", "low"]
    assert engine.stats().models[0].num_preemptions == 1


def test_a_low_priority_does_not_wait_for_ever():
    model = ToyModel()
    engine = toy_engine(model, max_running=1)
    engine.submit(toy_request("low", [1], 3))
    results = Results()
    for i in range(100):
        engine.submit(toy_request(str(i), [2], 3, priority=1))
        model.clock.now_s += 5
        for _ in range(3):
            results.add(engine.step())
    assert len(results.last) > list(results.last).index("low") > 5


def test_more_streams_than_a_step_takes_take_turns():
    engine = toy_engine(max_batch=3)
    for i in range(8):
        engine.submit(toy_request(str(i), [i], 9))
    results = run_all(engine)
    assert all(results.tokens[str(i)] == expected_tokens([i], 9) for i in range(8))
    finished = list(results.last.values())
    assert [output.stats.generated_tokens for output in finished] == [9] * 8


def test_prompts_get_on_beside_more_streams_than_a_step_takes():
    engine = toy_engine(max_batch=3)
    for i in range(5):
        engine.submit(toy_request(str(i), [i], None))
    for _ in range(5):
        engine.step()
    engine.submit(toy_request("late", [9] * 40, 1))
    outputs = [output.request_id for _ in range(10) for output in engine.step()]
    assert "late" in outputs


def test_a_full_queue_refuses_the_latest():
    engine = toy_engine(max_running=2, max_queue=3)
    for i in range(8):
        engine.submit(toy_request(str(i), [i], 4))
    results = run_all(engine)
    refused = [name for name, last in results.last.items() if last.finish_reason == "busy"]
    assert sorted(refused) == ["5", "6", "7"]
    assert all(results.tokens[str(i)] == expected_tokens([i], 4) for i in range(5))


def test_who_was_preempted_is_not_refused():
    engine = toy_engine(num_blocks=8, max_queue=0)
    for i in range(3):
        engine.submit(toy_request(str(i), [i] * 16, 80))
    results = run_all(engine)
    assert engine.stats().models[0].num_preemptions > 0
    assert all(results.tokens[str(i)] == expected_tokens([i] * 16, 80) for i in range(3))


def test_two_models_share_a_memory_too_small_for_both():
    engine, _ = two_models(num_blocks=24)
    requests = {
        f"{model_id}{i}": ([i + 1] * (5 + 9 * i), model_id, salt)
        for i in range(5)
        for salt, model_id in enumerate(("toy", "other"))
    }
    for name, (prompt, model_id, _) in requests.items():
        engine.submit(toy_request(name, prompt, 60, model_id=model_id))
    results = run_all(engine)
    assert sum(model.num_preemptions for model in engine.stats().models) > 0
    for name, (prompt, _, salt) in requests.items():
        assert results.tokens[name] == expected_tokens(prompt, 60, salt)


def test_idle_memory_goes_back():
    engine, _ = two_models()
    for model_id in ("toy", "other"):
        engine.submit(toy_request(model_id, [1] * 50, 20, model_id=model_id))
    run_all(engine)
    stats = engine.stats()
    assert all(model.committed_kv_bytes > 0 == model.used_kv_bytes for model in stats.models)
    engine.trim_kv()
    assert all(model.committed_kv_bytes == 0 for model in engine.stats().models)
    engine.check()
