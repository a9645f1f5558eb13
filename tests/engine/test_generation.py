"""A request gives its own tokens, whatever runs beside it, and ends for the right reason."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puna.engine import SamplingParams
from tests.engine.toy import (
    POISON,
    Results,
    ToyModel,
    expected_tokens,
    run_all,
    toy_engine,
    toy_logits,
    toy_request,
)

pytestmark = pytest.mark.native


def prompts(count: int, longest: int = 200) -> list[list[int]]:
    source = random.Random(count)
    return [[source.randrange(POISON) for _ in range(source.randint(1, longest))] for _ in range(count)]


def test_32_concurrent_requests_give_what_they_give_alone():
    engine = toy_engine()
    for index, prompt in enumerate(prompts(32)):
        engine.submit(toy_request(str(index), prompt, max_tokens=5 + index))
    results = run_all(engine)
    for index, prompt in enumerate(prompts(32)):
        assert results.tokens[str(index)] == expected_tokens(prompt, 5 + index)
        assert results.last[str(index)].finish_reason == "length"


def test_a_seed_gives_the_same_tokens_alone_and_in_a_crowd():
    def sampling(seed: int) -> SamplingParams:
        return SamplingParams(temperature=1.5, seed=seed, top_k=20, repeat_penalty=1.3)

    together = toy_engine()
    for index, prompt in enumerate(prompts(8)):
        together.submit(toy_request(str(index), prompt, 30, sampling=sampling(index)))
    crowd = run_all(together)
    for index, prompt in enumerate(prompts(8)):
        alone = toy_engine(prefill_tokens=7)
        alone.submit(toy_request("alone", prompt, 30, sampling=sampling(index)))
        assert run_all(alone).tokens["alone"] == crowd.tokens[str(index)]


def test_without_a_seed_runs_differ():
    engine = toy_engine()
    sampling = SamplingParams(temperature=2.0)
    for name in "ab":
        engine.submit(toy_request(name, [1, 2, 3], 50, sampling=sampling))
    results = run_all(engine)
    assert results.tokens["a"] != results.tokens["b"]


def test_the_prompt_counts_for_penalties():
    prompt = list(range(50))
    sampling = SamplingParams(temperature=0, frequency_penalty=100.0, repeat_last_n=-1)
    engine = toy_engine()
    engine.submit(toy_request("r", prompt, 40, sampling=sampling))
    tokens = run_all(engine).tokens["r"]
    assert len({*prompt, *tokens}) == 90


def test_a_stop_token_ends_the_answer_and_is_not_part_of_it():
    prompt = [5, 6, 7]
    tokens = expected_tokens(prompt, 20)
    stop = tokens[12]
    engine = toy_engine()
    engine.submit(toy_request("r", prompt, None, stop_tokens=[stop, POISON]))
    results = run_all(engine)
    assert results.tokens["r"] == tokens[: tokens.index(stop)]
    assert results.last["r"].finish_reason == "stop"
    assert results.last["r"].tokens == []


@pytest.mark.parametrize(("wanted", "limit"), [(None, 50), (30, 30), (400, 50)])
def test_the_context_length_ends_the_answer(wanted: int | None, limit: int):
    engine = toy_engine(ToyModel(context_length=50))
    engine.submit(toy_request("r", list(range(20)), None, context_length=wanted))
    results = run_all(engine)
    assert results.tokens["r"] == expected_tokens(list(range(20)), limit - 20)
    assert results.last["r"].finish_reason == "length"


def test_a_prompt_that_fills_the_context_still_gets_one_token():
    engine = toy_engine(ToyModel(context_length=32))
    engine.submit(toy_request("r", list(range(32)), None))
    assert run_all(engine).tokens["r"] == expected_tokens(list(range(32)), 1)


def test_max_tokens_zero_finishes_at_once():
    engine = toy_engine()
    engine.submit(toy_request("r", [1, 2], 0))
    results = run_all(engine)
    assert results.tokens["r"] == []
    assert results.last["r"].finish_reason == "length"
    assert results.last["r"].stats is not None
    assert results.last["r"].stats.prompt_tokens == 2


def test_logprobs_come_with_their_tokens():
    engine = toy_engine()
    sampling = SamplingParams(temperature=0, num_logprobs=3)
    engine.submit(toy_request("with", [1, 2, 3], 1, sampling=sampling))
    engine.submit(toy_request("without", [1, 2, 4], 1))
    outputs = {output.request_id: output for output in engine.step()}
    assert outputs["without"].logprobs is None
    (logprob,) = outputs["with"].logprobs or []
    logits = toy_logits(np.array([1, 2, 3], dtype=np.int32)).astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum())
    best = np.argsort(-logits)[:3]
    assert [other.token for other in logprob.top] == best.tolist()
    assert logprob.token == best[0] == outputs["with"].tokens[0]
    assert logprob.logprob == pytest.approx(expected[best[0]], abs=1e-4)
    assert [other.logprob for other in logprob.top] == pytest.approx(expected[best].tolist(), abs=1e-4)


def test_stats_count_tokens_and_time():
    engine = toy_engine(prefill_tokens=16)
    prompt = list(range(90))
    stop = expected_tokens(prompt, 4)[3]
    engine.submit(toy_request("r", prompt, None, stop_tokens=[stop]))
    stats = run_all(engine).last["r"].stats
    assert stats is not None
    # The stop token was drawn, too.
    assert (stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens) == (90, 0, 4)
    assert stats.prompt_ns > 0
    assert stats.generation_ns > 0


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_schedule_gives_the_same_tokens(data: st.DataObject):
    engine = toy_engine(
        num_blocks=data.draw(st.integers(6, 40), "blocks"),
        prefill_tokens=data.draw(st.integers(1, 40), "chunk"),
        min_prefill_tokens=data.draw(st.integers(1, 20), "busy chunk"),
        unnoticed_s=data.draw(st.sampled_from([0.0, 0.03]), "unnoticed"),
        max_batch=data.draw(st.integers(1, 8), "batch"),
        max_running=data.draw(st.none() | st.integers(1, 6), "max running"),
    )
    requests = data.draw(
        st.lists(
            st.tuples(
                st.lists(st.integers(0, POISON - 1), min_size=1, max_size=60),
                st.integers(1, 30),
                st.integers(0, 20),  # steps before it arrives
            ),
            min_size=1,
            max_size=8,
        ),
        "requests",
    )
    results = Results()
    for index, (prompt, count, delay) in enumerate(requests):
        engine.submit(toy_request(str(index), prompt, count))
        for _ in range(delay):
            results.add(engine.step())
            engine.check()
    run_all(engine, results)
    for index, (prompt, count, _) in enumerate(requests):
        assert results.tokens[str(index)] == expected_tokens(prompt, count)
    assert engine.stats().models[0].used_kv_bytes == 0
