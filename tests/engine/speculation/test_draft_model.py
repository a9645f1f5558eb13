"""A second model drafts: it saves steps, changes no token, and gives way where memory is short."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puna._native import NativeError
from puna.backends.base import Batch, BlockMemory
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams
from puna.engine.sequences.draft_state import DraftState
from tests.engine.toy import (
    BLOCK_BYTES,
    GREEDY,
    Results,
    ToyBackend,
    ToyClock,
    ToyModel,
    expected_tokens,
    run_all,
    toy_request,
)

pytestmark = pytest.mark.native

PROMPT = [70, 71, 72, 73]


class Pair:
    """An engine with a slow model, "toy", and a quick one, "draft", which says mostly the same.

    similar: whether it always says the same.
    """

    def __init__(
        self, *, similar: bool = True, num_blocks: int = 1000, draft: ToyModel | None = None, **fields: object
    ) -> None:
        clock = ToyClock()
        self.model = ToyModel(is_habitual=True, clock=clock, step_s=0.050)
        self.draft = draft or ToyModel(salt=0 if similar else 5, is_habitual=True, **fields)
        self.draft.clock = clock
        settings = EngineSettings(kv_limit_bytes=num_blocks * BLOCK_BYTES)
        self.engine = EngineCore(ToyBackend(), settings, clock)
        self.engine.attach_model("toy", self.model)
        self.engine.attach_model("draft", self.draft)

    def run(self, *requests: Request) -> Results:
        for request in requests:
            self.engine.submit(request)
        return run_all(self.engine)

    def used_blocks(self, model_id: str) -> int:
        stats = next(m for m in self.engine.stats().models if m.model_id == model_id)
        return stats.used_kv_bytes // stats.block_bytes


def drafted(name: str, prompt: list[int] = PROMPT, max_tokens: int | None = 100, **fields: object) -> Request:
    return toy_request(name, prompt, max_tokens, draft_model_id="draft", **fields)


def answer(request: Request) -> list[int]:
    """Without any drafts."""
    pair = Pair()
    plain = toy_request(
        request.id,
        request.prompt,
        request.max_tokens,
        sampling=request.sampling,
        context_length=request.context_length,
        shift=request.shift,
        num_draft=0,
    )
    return pair.run(plain).tokens[request.id]


@pytest.mark.parametrize("similar", [True, False])
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=0.9, seed=3, repeat_penalty=1.1)])
def test_a_draft_model_changes_nothing_but_the_number_of_steps(similar: bool, sampling: SamplingParams):
    pair = Pair(similar=similar)
    request = drafted("r", sampling=sampling)
    results = pair.run(request)
    stats = results.last["r"].stats
    assert results.tokens["r"] == answer(request)
    assert len(pair.model.steps) == 100 - stats.accepted_tokens < 85


def test_drafts_of_the_same_model_are_all_right():
    pair = Pair()
    stats = pair.run(drafted("r")).last["r"].stats
    assert stats.drafted_tokens == stats.accepted_tokens > 60
    assert len(pair.model.steps) < 40


def test_sequences_are_drafted_for_together():
    pair = Pair()
    requests = [drafted(str(i), [*PROMPT, i]) for i in range(4)]
    results = pair.run(*requests)
    assert all(results.tokens[r.id] == answer(r) for r in requests)
    assert max(map(len, pair.draft.steps)) == 4


def test_each_may_say_how_many():
    pair = Pair()
    results = pair.run(drafted("none", num_draft=0), drafted("two", num_draft=2))
    assert results.last["none"].stats.drafted_tokens == 0
    assert results.last["two"].stats.accepted_tokens > 50
    assert max(max(step) for step in pair.model.steps[1:]) == 3


def test_a_prompt_is_caught_up_with_in_steps_no_longer_than_the_models_own():
    pair = Pair()
    prompt = [i % 90 for i in range(600)]
    results = pair.run(drafted("r", prompt))
    assert results.tokens["r"] == answer(drafted("r", prompt))
    longest = max(step[0] for step in pair.draft.steps[1:])
    assert longest <= 50, "a token of it takes 1 ms, a step of the model 51 ms"


def test_a_draft_model_that_is_slow_is_hardly_asked():
    pair = Pair(step_s=0.200)
    results = pair.run(drafted("r", max_tokens=300, num_draft=3))
    assert results.tokens["r"] == answer(drafted("r", max_tokens=300))
    assert len(pair.draft.steps) < 20


def test_its_blocks_go_back_with_the_request():
    pair = Pair()
    pair.engine.submit(drafted("done", max_tokens=30))
    run_all(pair.engine)
    assert pair.used_blocks("draft") == 0
    pair.engine.submit(drafted("cancelled", max_tokens=None))
    for _ in range(8):
        pair.engine.step()
    assert pair.used_blocks("draft") > 0
    pair.engine.cancel("cancelled")
    assert pair.used_blocks("draft") == 0
    pair.engine.check()


def test_without_its_draft_model_a_request_goes_on():
    pair = Pair()
    request = drafted("r", max_tokens=200)
    pair.engine.submit(request)
    results = Results()
    for _ in range(6):
        results.add(pair.engine.step())
    pair.engine.unload_model("draft")
    pair.engine.submit(drafted("later", max_tokens=40))
    run_all(pair.engine, results)
    assert results.tokens["r"] == answer(request)
    assert results.tokens["later"] == answer(drafted("later", max_tokens=40))


def test_unloading_the_model_gives_the_draft_models_blocks_back():
    pair = Pair()
    pair.engine.submit(drafted("r"))
    for _ in range(6):
        pair.engine.step()
    pair.engine.unload_model("toy")
    assert pair.used_blocks("draft") == 0
    pair.engine.check()


def test_a_vocabulary_of_another_size_is_refused():
    pair = Pair()
    pair.engine.attach_model("other", OtherVocabulary())
    results = pair.run(toy_request("r", PROMPT, draft_model_id="other"))
    assert results.last["r"].finish_reason == "error"
    assert "vocabulary" in results.last["r"].error


def test_a_draft_model_that_fails_is_done_without():
    pair = Pair(draft=Failing(is_habitual=True))
    results = pair.run(drafted("r"))
    assert results.tokens["r"] == answer(drafted("r"))
    assert pair.used_blocks("draft") == 0


def test_past_its_context_a_draft_model_is_silent():
    pair = Pair(context_length=40)
    results = pair.run(drafted("r", max_tokens=150))
    assert results.tokens["r"] == answer(drafted("r", max_tokens=150))
    assert max(len(PROMPT), *np.cumsum([sum(step) for step in pair.draft.steps])[:3]) <= 40


def test_a_shifted_context_is_drafted_for_too():
    request = drafted("r", max_tokens=120, context_length=40, shift=True)
    pair = Pair()
    results = pair.run(request)
    assert results.tokens["r"] == answer(request)
    assert results.last["r"].stats.accepted_tokens > 20


def test_a_model_may_draft_for_itself():
    pair = Pair()
    request = toy_request("r", PROMPT, 80, draft_model_id="toy", num_draft=3)
    assert pair.run(request).tokens["r"] == answer(request)


def test_models_may_draft_for_each_other():
    pair = Pair(similar=False)
    back = toy_request("back", PROMPT, 60, model_id="draft", draft_model_id="toy")
    results = pair.run(drafted("forth"), back)
    assert results.tokens["forth"] == answer(drafted("forth"))
    assert results.tokens["back"] == expected_tokens(PROMPT, 60, salt=5, is_habitual=True)


@settings(deadline=None, max_examples=30)
@given(
    num_requests=st.integers(1, 4),
    num_blocks=st.integers(8, 25),
    similar=st.booleans(),
    cancelled=st.integers(0, 40),
)
def test_where_memory_is_short_drafts_give_way(
    num_requests: int, num_blocks: int, similar: bool, cancelled: int
):
    pair = Pair(similar=similar, num_blocks=num_blocks)
    requests = [drafted(str(i), [*PROMPT, i], 60 + 9 * i) for i in range(num_requests)]
    for request in [*requests, drafted("gone")]:
        pair.engine.submit(request)
    results = Results()
    for _ in range(cancelled):
        results.add(pair.engine.step())
        pair.engine.check()
    pair.engine.cancel("gone")
    run_all(pair.engine, results)
    assert all(results.tokens[r.id] == answer(r) for r in requests)
    assert pair.used_blocks("toy") == pair.used_blocks("draft") == 0


def test_where_drafts_do_not_pay_there_is_one_after_ever_longer_waits():
    state = DraftState(None, None)
    made = [index for index in range(200) if state.ration(0)]
    assert made == [0, 17, 50, 115]
    assert state.ration(4) == 4
    assert [index for index in range(40) if state.ration(0)] == [0, 17]


def test_the_rate_counts_drafts_up_to_the_first_wrong_one():
    state = DraftState(None, None)
    state.rate = 0.5
    state.drafted(3, [7, 8, 9])
    state.judge(np.array([1, 2, 3, 7, 5, 9], dtype=np.int32))
    assert state.num_computed == 4, "the first draft was right, and computed"
    assert state.rate == pytest.approx(0.5), "a right and a wrong one"
    for _ in range(100):
        state.drafted(3, [7])
        state.judge(np.array([1, 2, 3, 7], dtype=np.int32))
    assert state.rate > 0.99


class OtherVocabulary(ToyModel):
    """One token more."""

    def __init__(self) -> None:
        super().__init__()
        self.info = type(self.info)(
            **{f: getattr(self.info, f) for f in self.info.__struct_fields__} | {"vocab_size": 98}
        )


class Failing(ToyModel):
    """After some steps."""

    def logits(self, batch: Batch, kv: Sequence[BlockMemory]) -> NDArray[np.float32]:
        if len(self.steps) > 3:
            raise NativeError("out of order")
        return super().logits(batch, kv)
