"""With drafts verified ahead, every request gives the very tokens that it gives without."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puna.engine import Request, SamplingParams, StepOutput
from puna.engine.sequences.sequence import MAX_DRAFT
from tests.engine.toy import (
    GREEDY,
    ToyModel,
    expected_tokens,
    run_all,
    toy_engine,
    toy_request,
)

pytestmark = pytest.mark.native

PROMPT = [7, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
SAMPLINGS = {
    "greedy": GREEDY,
    "drawn": SamplingParams(temperature=1.3, seed=5),
    "penalties": SamplingParams(temperature=1.0, seed=6, repeat_penalty=1.1, presence_penalty=0.3),
    "logprobs": SamplingParams(temperature=0.7, seed=7, num_logprobs=3),
}


def habitual(**fields: object) -> ToyModel:
    """A model whose answers repeat themselves, and whose long steps are cheap."""
    return ToyModel(is_habitual=True, step_s=0.050, **fields)


def outputs_of(requests: list[Request], model: ToyModel, **fields: object) -> dict[str, list[StepOutput]]:
    engine = toy_engine(model, **fields)
    for request in requests:
        engine.submit(request)
    outputs: dict[str, list[StepOutput]] = {request.id: [] for request in requests}
    while engine.has_work:
        for output in engine.step():
            outputs[output.request_id].append(output)
        engine.check()
    return outputs


def flat(outputs: list[StepOutput]) -> tuple[list[int], list[object], str | None]:
    logprobs = [logprob for output in outputs for logprob in output.logprobs or []]
    return [token for output in outputs for token in output.tokens], logprobs, outputs[-1].finish_reason


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_drafting_changes_nothing_but_the_number_of_steps(sampling: SamplingParams):
    runs = {}
    for num_draft in (None, 0):
        model = habitual()
        request = toy_request("r", PROMPT, 200, sampling=sampling, num_draft=num_draft)
        outputs = outputs_of([request], model)["r"]
        runs[num_draft] = flat(outputs), len(model.steps), outputs[-1].stats
    (drafted, num_steps, stats), (alone, num_single_steps, none) = runs[None], runs[0]
    assert drafted == alone
    assert (none.drafted_tokens, none.accepted_tokens, num_single_steps) == (0, 0, 200)
    assert stats.drafted_tokens >= stats.accepted_tokens > 20
    assert num_steps == 200 - stats.accepted_tokens
    assert stats.generated_tokens == 200


def test_several_tokens_of_a_step_have_their_logprobs():
    sampling = SamplingParams(temperature=0, num_logprobs=2)
    outputs = outputs_of([toy_request("r", PROMPT, 100, sampling=sampling)], habitual())["r"]
    assert max(len(output.tokens) for output in outputs) > 2
    for output in outputs:
        assert [logprob.token for logprob in output.logprobs or []] == output.tokens


@pytest.mark.parametrize("num_draft", [1, 3])
def test_no_more_is_drafted_than_the_request_allows(num_draft: int):
    model = habitual()
    outputs_of([toy_request("r", PROMPT, 100, num_draft=num_draft)], model)
    assert max(step[0] for step in model.steps[1:]) == 1 + num_draft


def test_that_tokens_cost_their_full_price_is_found_out_by_few_drafts():
    model = ToyModel(is_habitual=True)
    outputs_of([toy_request("r", PROMPT, 200)], model)
    assert sum(step[0] > 1 for step in model.steps[1:]) < 6


@pytest.mark.parametrize("max_tokens", range(1, 40))
def test_the_last_token_is_the_last(max_tokens: int):
    outputs = outputs_of([toy_request("r", PROMPT, max_tokens)], habitual())["r"]
    tokens, _, reason = flat(outputs)
    assert tokens == expected_tokens(PROMPT, max_tokens, is_habitual=True)
    assert reason == "length"


def test_a_stop_token_ends_the_answer_wherever_it_comes():
    answer = expected_tokens(PROMPT, 120, is_habitual=True)
    for stop in sorted(set(answer)):
        outputs = outputs_of([toy_request("r", PROMPT, 200, stop_tokens=[stop])], habitual())["r"]
        tokens, _, reason = flat(outputs)
        assert (tokens, reason) == (answer[: answer.index(stop)], "stop")
        assert outputs[-1].stats.generated_tokens == len(tokens) + 1


def test_the_context_ends_where_it_would_without_drafts():
    request = toy_request("r", PROMPT, None, context_length=50)
    tokens, _, reason = flat(outputs_of([request], habitual())["r"])
    assert (tokens, reason) == (expected_tokens(PROMPT, 50 - len(PROMPT), is_habitual=True), "length")


def test_a_full_context_is_shifted_at_the_same_tokens():
    request = toy_request("r", PROMPT, 150, context_length=40, shift=True, num_keep=4)
    outputs = outputs_of([request], habitual())["r"]
    expected = expected_tokens(PROMPT, 150, is_habitual=True, context_length=40, num_keep=4)
    assert flat(outputs)[0] == expected
    assert outputs[-1].stats.accepted_tokens > 20


def test_nobody_is_preempted_for_drafts():
    requests = [toy_request(name, PROMPT + [ord(name)] * 2, 60) for name in "PQRS"]
    spacious = outputs_of(requests, habitual())
    # Exactly the blocks that they need in the end: 75 tokens are 5 blocks.
    engine = toy_engine(habitual(), num_blocks=4 * 5)
    for request in requests:
        engine.submit(request)
    results = run_all(engine)
    assert engine.stats().models[0].num_preemptions == 0
    assert all(results.tokens[r.id] == flat(spacious[r.id])[0] for r in requests)


@settings(deadline=None, max_examples=30)
@given(
    num_requests=st.integers(1, 5),
    num_blocks=st.integers(5, 20),
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.0, 1.2]),
    policy=st.sampled_from(["prefix", "slots"]),
)
def test_short_memory_and_company_change_no_token(
    num_requests: int, num_blocks: int, seed: int, temperature: float, policy: str
):
    def requests(num_draft: int | None) -> list[Request]:
        sampling = SamplingParams(temperature=temperature, seed=seed)
        return [
            toy_request(str(i), PROMPT + [i] * (seed % 5), 20 + 7 * i, sampling=sampling, num_draft=num_draft)
            for i in range(num_requests)
        ]

    drafted = outputs_of(requests(None), habitual(), num_blocks=num_blocks, cache_policy=policy)
    for request in requests(0):
        assert flat(drafted[request.id]) == flat(outputs_of([request], habitual())[request.id])


def test_sure_drafts_come_many_at_a_time():
    model = ToyModel(is_habitual=True, step_s=1.0)
    outputs_of([toy_request("r", PROMPT, 200)], model)
    assert 8 < max(step[0] for step in model.steps[1:]) <= 1 + MAX_DRAFT
