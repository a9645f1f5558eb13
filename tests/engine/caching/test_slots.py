"""With slots, prompts are continued as Ollama's runner does it, and everybody still gets their own output."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.toy import Results, ToyModel, Windows, expected_tokens, run_all, toy_engine, toy_request

pytestmark = pytest.mark.native

TALK = [i % 89 for i in range(60)]


def slots_engine(model: ToyModel | None = None, **fields: object):
    return toy_engine(model, cache_policy="slots", **fields)


def cached(results: Results, name: str) -> int:
    return results.last[name].stats.cached_tokens


def test_a_conversation_goes_on_in_its_slot():
    engine = slots_engine(max_running=2)
    engine.submit(toy_request("one", TALK, 5))
    answer = run_all(engine).tokens["one"]
    prompt = [*TALK, *answer, 7, 8]
    engine.submit(toy_request("two", prompt, 5))
    results = run_all(engine)
    assert results.tokens["two"] == expected_tokens(prompt, 5)
    assert cached(results, "two") == len(TALK) + 4, "the last token drawn was never computed"


def test_the_longest_match_is_continued_at_the_cost_of_its_rest():
    engine = slots_engine(max_running=2)
    for name, prompt, reused in (("a", TALK, 0), ("b", [*TALK[:40], 1, 2], 40), ("c", TALK, 40)):
        engine.submit(toy_request(name, prompt, 1))
        results = run_all(engine)
        assert results.tokens[name] == expected_tokens(prompt, 1)
        assert cached(results, name) == reused


def test_with_many_users_the_beginning_is_copied_to_the_oldest_slot():
    engine = slots_engine(max_running=2, multi_user_cache=True)
    for name, prompt, reused in (("a", TALK, 0), ("b", [*TALK[:40], 1, 2], 40), ("c", TALK, 59)):
        engine.submit(toy_request(name, prompt, 1))
        results = run_all(engine)
        assert results.tokens[name] == expected_tokens(prompt, 1)
        assert cached(results, name) == reused


def test_a_busy_slot_is_forked():
    engine = slots_engine(max_running=2, multi_user_cache=True)
    engine.submit(toy_request("a", TALK, 30))
    for _ in range(10):
        engine.step()
    engine.submit(toy_request("b", [*TALK, 3], 30))
    results = run_all(engine)
    assert cached(results, "b") == len(TALK)
    assert results.tokens["b"] == expected_tokens([*TALK, 3], 30)


def test_no_more_sequences_run_than_there_are_slots():
    model = ToyModel()
    engine = slots_engine(model)
    for i in range(9):
        engine.submit(toy_request(str(i), [i], 6))
    results = run_all(engine)
    assert max(map(len, model.steps)) == 4
    assert all(results.tokens[str(i)] == expected_tokens([i], 6) for i in range(9))


def test_idle_slots_make_way_for_running_sequences_and_for_other_models():
    toy = ToyModel()
    engine = slots_engine(toy, num_blocks=12)
    other = ToyModel(salt=1, clock=toy.clock)
    engine.attach_model("other", other)
    for i in range(6):
        for salt, model_id in enumerate(("toy", "other")):
            prompt = [i, *TALK]
            name = f"{model_id}{i}"
            engine.submit(toy_request(name, prompt, 60, model_id=model_id))
            assert run_all(engine).tokens[name] == expected_tokens(prompt, 60, salt)
    assert sum(model.num_preemptions for model in engine.stats().models) == 0


def test_what_slots_keep_is_dropped_with_the_cache_and_with_the_model():
    engine = slots_engine()
    engine.submit(toy_request("a", TALK, 3))
    run_all(engine)
    assert engine.stats().models[0].used_kv_bytes > 0
    engine.trim_kv()
    assert engine.stats().models[0].committed_kv_bytes == 0
    engine.submit(toy_request("b", TALK, 3))
    run_all(engine)
    engine.close()
    engine.check()


def test_a_session_is_refused():
    engine = slots_engine()
    engine.submit(toy_request("a", TALK, 3, session="s"))
    assert "prefix tree" in run_all(engine).last["a"].error


@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(
        st.tuples(
            st.integers(0, 40),  # tokens of a common beginning
            st.lists(st.integers(0, 2), min_size=1, max_size=12),
            st.integers(1, 40),
            st.integers(0, 12),  # steps before the next one comes
            st.booleans(),  # context shift
        ),
        min_size=1,
        max_size=8,
    ),
    num_blocks=st.integers(6, 30),
    num_slots=st.integers(1, 4),
    multi_user=st.booleans(),
    windows=st.sampled_from([(None,), (None, 33), (None, 60), (20, 5)]),
)
def test_whatever_slots_hold_everybody_gets_their_own_output(
    requests: list[tuple[int, list[int], int, int, bool]],
    num_blocks: int,
    num_slots: int,
    multi_user: bool,
    windows: Windows,
):
    model = ToyModel(windows=windows)
    num_blocks *= len(windows)
    engine = slots_engine(model, num_blocks=num_blocks, max_running=num_slots, multi_user_cache=multi_user)
    results = Results()
    wanted = {}
    for index, (start, end, count, delay, shift) in enumerate(requests):
        prompt, context = TALK[:start] + end, 64 if shift else None
        request = toy_request(str(index), prompt, count, context_length=context, shift=shift, num_keep=5)
        engine.submit(request)
        wanted[str(index)] = expected_tokens(
            prompt, count, context_length=context, num_keep=5, windows=windows
        )
        for _ in range(delay):
            results.add(engine.step())
            engine.check()
    run_all(engine, results)
    assert results.tokens == wanted
    engine.trim_kv()
    assert engine.stats().models[0].committed_kv_bytes == 0
