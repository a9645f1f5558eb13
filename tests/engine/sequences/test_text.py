"""The text of replies, and where it ends: the same alone, under load, preempted and with drafts."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puna.engine import EngineCore, Request, RequestStats, SamplingParams, StepOutput
from puna.engine.validation import MAX_STOP_BYTES
from tests.engine.toy import POISON, VOCABULARY, ToyModel, expected_tokens, toy_engine, toy_request
from tests.text.reference import expected, table_of

pytestmark = pytest.mark.native

PROMPT = [7, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
# The first six are what a habitual model mostly says.
PIECES = [b"a", b" b\xf0", b"\x9f\x98\x80", b"a\n", b"ab", b"\xe2\x82"]
PIECES += [bytes([byte]) for byte in range(48, 48 + VOCABULARY - len(PIECES))]
TABLE = table_of(PIECES, frozenset({POISON}))


@dataclass
class Answer:
    text: str
    tokens: list[int]
    logprobs: list[tuple[int, float, bytes]]
    reason: str | None
    stats: RequestStats


def habitual(**fields: object) -> ToyModel:
    return ToyModel(is_habitual=True, step_s=0.050, **fields)


def text_engine(model: ToyModel, **fields: object) -> EngineCore:
    engine = toy_engine(model, **fields)
    engine.set_token_table("toy", TABLE)
    return engine


def answers_of(engine: EngineCore, requests: list[Request]) -> dict[str, Answer]:
    outputs: dict[str, list[StepOutput]] = {request.id: [] for request in requests}
    for request in requests:
        engine.submit(request)
    while engine.has_work:
        for output in engine.step():
            outputs[output.request_id].append(output)
        engine.check()
    return {request_id: answer_of(parts) for request_id, parts in outputs.items()}


def answer_of(outputs: list[StepOutput]) -> Answer:
    last = outputs[-1]
    assert last.stats is not None
    logprobs = [(p.token, p.logprob, p.bytes) for output in outputs for p in output.logprobs or []]
    tokens = [token for output in outputs for token in output.tokens]
    return Answer("".join(o.text for o in outputs), tokens, logprobs, last.finish_reason, last.stats)


@settings(max_examples=40, deadline=None)
@given(
    stop=st.lists(st.text("ab😀 \n\ufffd", min_size=1, max_size=6), max_size=3),
    max_tokens=st.integers(1, 120),
    num_draft=st.sampled_from([None, 0, 3]),
)
def test_a_reply_is_what_its_tokens_decoded_at_once_give(
    stop: list[str], max_tokens: int, num_draft: int | None
):
    request = toy_request("r", PROMPT, max_tokens, stop=stop, num_draft=num_draft)
    answer = answers_of(text_engine(habitual()), [request])["r"]
    tokens = expected_tokens(PROMPT, max_tokens, is_habitual=True)
    wanted = expected(PIECES, stop, tokens)
    assert (answer.text, answer.tokens) == (wanted.text, wanted.tokens)
    assert answer.reason == ("stop" if wanted.ends else "length")
    assert answer.stats.generated_tokens == wanted.num_taken


@pytest.mark.parametrize("stop", [["a\nab"], ["a b😀a", "ba"], ["😀a\na", "never"]])
@pytest.mark.parametrize("num_draft", [0, None])
def test_load_preemption_and_drafts_change_no_reply(stop: list[str], num_draft: int | None):
    sampling = SamplingParams(temperature=0.5, seed=1, num_logprobs=0)
    requests = [
        toy_request(str(n), [n, *PROMPT], 80, stop=stop if n % 2 else [], sampling=sampling) for n in range(8)
    ]
    alone = {}
    for request in requests:
        undrafted = msgspec.structs.replace(request, num_draft=0)
        alone |= answers_of(text_engine(habitual()), [undrafted])
    assert "stop" in [answer.reason for answer in alone.values()]
    for num_blocks in (1000, 9):
        engine = text_engine(habitual(), num_blocks=num_blocks)
        together = answers_of(engine, [msgspec.structs.replace(r, num_draft=num_draft) for r in requests])
        assert bool(engine.stats().models[0].num_preemptions) == (num_blocks == 9)
        for request_id, answer in together.items():
            assert without_times(answer) == without_times(alone[request_id])


def without_times(answer: Answer) -> list[object]:
    return [answer.text, answer.tokens, answer.logprobs, answer.reason, answer.stats.generated_tokens]


def steps_of(engine: EngineCore, request: Request) -> list[StepOutput]:
    engine.submit(request)
    outputs = []
    while engine.has_work:
        outputs += engine.step()
    return outputs


def test_the_step_that_completes_a_stop_string_is_the_last():
    model = ToyModel()
    tokens = expected_tokens(PROMPT, 30)
    stop = b"".join(PIECES[token] for token in tokens[18:20]).decode()
    outputs = steps_of(text_engine(model), toy_request("r", PROMPT, 30, stop=[stop], num_draft=0))
    assert len(model.steps) == 20
    assert (outputs[-1].finish_reason, outputs[-1].stop_string) == ("stop", stop)
    assert sum(len(output.tokens) for output in outputs) == 18


@pytest.mark.parametrize("num_draft", [None, 0])
@pytest.mark.parametrize("session", ["s", None])
def test_the_kv_of_a_stopped_reply_is_right_for_who_continues_it(num_draft: int | None, session: str | None):
    for wanted in range(20, 90, 7):
        engine = text_engine(habitual())
        tokens = expected_tokens(PROMPT, wanted, is_habitual=True)
        text = expected(PIECES, [], tokens).text
        stop = text[-6:]
        first = toy_request("first", PROMPT, 200, stop=[stop], num_draft=num_draft, session=session)
        answer = answers_of(engine, [first])["first"]
        assert answer.reason == "stop"
        prompt = PROMPT + expected_tokens(PROMPT, answer.stats.generated_tokens, is_habitual=True)
        second = answers_of(engine, [toy_request("second", prompt, 20, session=session)])["second"]
        taken = expected_tokens(prompt, 20, is_habitual=True)[: second.stats.generated_tokens]
        assert second.tokens == taken
        assert second.stats.cached_tokens >= len(prompt) - 2


def test_a_reply_that_repeats_itself_ends_at_the_same_token_with_drafts_and_without():
    class Stuck(ToyModel):
        def logits(self, batch, kv):
            logits = super().logits(batch, kv)
            logits[:, 9] = 200
            return logits

    lengths = {}
    for num_draft in (None, 0):
        model = Stuck(step_s=0.050)
        answer = answers_of(text_engine(model), [toy_request("r", PROMPT, 100, num_draft=num_draft)])["r"]
        assert (answer.reason, answer.stats.generated_tokens, len(answer.tokens)) == ("stop", 31, 31)
        assert answer.text == PIECES[9].decode() * 31
        lengths[num_draft] = len(model.steps)
    assert lengths[None] < lengths[0] == 31


def test_without_a_token_table_there_are_tokens_and_no_stop_strings():
    engine = toy_engine()
    engine.submit(toy_request("stop", PROMPT, 5, stop=["x"]))
    (refused,) = engine.step()
    assert refused.error == "stop strings need a model whose vocabulary the engine knows"
    answer = answers_of(engine, [toy_request("r", PROMPT, 5)])["r"]
    assert (answer.text, answer.tokens) == ("", expected_tokens(PROMPT, 5))


@pytest.mark.parametrize(
    ("stop", "message"),
    [(["x" * MAX_STOP_BYTES, "y"], "65537 bytes, more than 65536"), (["\ud800"], "half of a surrogate pair")],
)
def test_stop_strings_that_make_no_sense_are_refused(stop: list[str], message: str):
    engine = text_engine(ToyModel())
    engine.submit(toy_request("r", PROMPT, 5, stop=stop))
    (refused,) = engine.step()
    assert message in (refused.error or "")


def test_the_token_table_stays_through_sleep_and_goes_with_the_model():
    engine = text_engine(ToyModel())
    engine.sleep_model("toy")
    engine.wake_model("toy")
    assert answers_of(engine, [toy_request("r", PROMPT, 5)])["r"].text
    engine.unload_model("toy")
    engine.attach_model("toy", ToyModel())
    assert answers_of(engine, [toy_request("again", PROMPT, 5)])["again"].text == ""
    engine.set_token_table("nobody", TABLE)  # was unloaded meanwhile


def test_logprobs_say_what_their_tokens_stand_for():
    sampling = SamplingParams(temperature=0, num_logprobs=3)
    outputs = steps_of(text_engine(ToyModel()), toy_request("r", PROMPT, 9, sampling=sampling))
    entries = [entry for output in outputs for entry in output.logprobs or []]
    assert len(entries) == 9
    for entry in entries:
        assert entry.bytes == PIECES[entry.token]
        assert [top.bytes for top in entry.top] == [PIECES[top.token] for top in entry.top]


def test_logits_that_are_no_numbers_fail_their_request_alone():
    class Broken(ToyModel):
        def logits(self, batch, kv):
            logits = super().logits(batch, kv)
            for row, index in enumerate(batch.rows):
                if batch.positions[index] == 40:
                    logits[row, 3] = np.nan
            return logits

    for num_draft in (None, 0):
        requests = [toy_request(str(n), PROMPT + [8] * n, 100, num_draft=num_draft) for n in (0, 1, 40)]
        answers = answers_of(text_engine(Broken(is_habitual=True, step_s=0.05)), requests)
        assert [answer.reason for answer in answers.values()] == ["error", "error", "length"]
        wanted = [expected_tokens(r.prompt, 100, is_habitual=True) for r in requests]
        sizes = [len(answer.tokens) for answer in answers.values()]
        # What was held back of a character that is not complete does not come any more.
        most = 41 - len(PROMPT)
        assert most - 3 <= sizes[0] <= most
        assert [a.tokens for a in answers.values()] == [w[:n] for w, n in zip(wanted, sizes, strict=True)]
