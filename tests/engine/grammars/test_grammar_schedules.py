"""Replies that are held to grammars, embeddings and plain replies beside each other, whatever happens."""

from __future__ import annotations

import gc
import queue
import re
import weakref
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec.structs import replace

from puna._native import ReplyGrammar
from puna.engine import EngineCore, Request, SamplingParams
from puna.engine.grammars.limits import COMPILE_S
from tests.engine.grammars.test_grammars import GRAMMARS, PIECES, grammar_engine
from tests.engine.test_embeddings import POOLINGS, embed_request
from tests.engine.toy import BLOCK_BYTES, Results, ToyModel, run_all, toy_request

pytestmark = pytest.mark.native

BAD = "start: nowhere"
PROMPTS = [[i * 5 % 80 for i in range(70)], [i * 5 % 80 for i in range(45)], [3], []]
Answer = tuple[list[int], str | None, str | None, bytes]
"""Its tokens, why it ended, with what error, its embedding."""
_alone: dict[tuple[str, bool], Answer] = {}


def new_engine(has_states: bool, **fields: object) -> EngineCore:
    state_bytes = BLOCK_BYTES if has_states else 0
    return grammar_engine(ToyModel(is_habitual=True, step_s=0.05, state_bytes=state_bytes), **fields)


def answer(results: Results, name: str) -> Answer:
    last = results.last[name]
    return results.tokens[name], last.finish_reason, last.error, last.embedding


def alone(request: Request, has_states: bool) -> Answer:
    """Of the same request in an engine of its own."""
    key = repr(replace(request, id="")), has_states
    if key not in _alone:
        engine = new_engine(has_states)
        engine.submit(request)
        _alone[key] = answer(run_all(engine), request.id)
        engine.close()
    return _alone[key]


class GrammarSchedules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[str, Request] = {}
        self.given_up: set[str] = set()
        self.held: weakref.WeakSet[ReplyGrammar] = weakref.WeakSet()
        self.ready: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.results = Results()

    @initialize(
        fields=st.sampled_from([{}, {"num_blocks": 14}, {"cache_policy": "slots", "max_running": 3}]),
        prefill_tokens=st.sampled_from([16, 256]),
        has_states=st.booleans(),
    )
    def start(self, fields: dict[str, object], prefill_tokens: int, has_states: bool) -> None:
        self.has_states = has_states
        self.engine = new_engine(has_states, prefill_tokens=prefill_tokens, **fields)
        self.engine.grammars.use_event_loop(self.ready.put)
        self.engine.grammars._start_threads = lambda: None

    @property
    def unfinished(self) -> list[str]:
        return [name for name in self.requests if name not in self.results.last]

    @property
    def num_compiling(self) -> int:
        return len(self.engine.grammars._pending)

    @rule(
        grammar=st.sampled_from([*GRAMMARS, *GRAMMARS, BAD, ""]),
        prompt=st.sampled_from(PROMPTS),
        last=st.integers(0, 3),
        max_tokens=st.sampled_from([1, 12, 40]),
        seed=st.integers(0, 2),
        num_draft=st.sampled_from([0, None]),
        draft_model_id=st.sampled_from([None, "draft"]),
    )
    def ask(self, prompt: list[int], last: int, max_tokens: int, seed: int, **fields: object) -> None:
        sampling = SamplingParams(temperature=1.0, seed=seed)
        name = str(len(self.requests))
        self._submit(toy_request(name, [*prompt, last], max_tokens, sampling=sampling, **fields))

    @rule(prompt=st.sampled_from(PROMPTS), last=st.integers(0, 3), pooling=st.sampled_from(POOLINGS))
    def embed(self, prompt: list[int], last: int, pooling: str) -> None:
        self._submit(embed_request(str(len(self.requests)), [*prompt, last], pooling))

    def _submit(self, request: Request) -> None:
        self.requests[request.id] = request
        self.engine.submit(request)
        self._note_held()
        self.engine.check()

    def _note_held(self) -> None:
        self.held |= {s.grammar for s in self.engine._requests.sequences.values() if s.grammar}

    @rule(count=st.sampled_from([1, 1, 4, 20]))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.results.add(self.engine.step())
            self.engine.check()

    @precondition(lambda self: self.num_compiling)
    @rule()
    def let_a_grammar_come(self) -> None:
        compiler = self.engine.grammars
        (compiler._work if compiler._preparations.empty() else compiler._preparations).get_nowait()()
        self.ready.get_nowait()()
        self._note_held()
        self.engine.check()

    @precondition(lambda self: self.num_compiling)
    @rule()
    def lose_patience(self) -> None:
        sequences = self.engine._requests.sequences.values()
        self.given_up |= {sequence.id for sequence in sequences if sequence.awaits_grammar}
        self.engine._clock.now_s += COMPILE_S
        self.engine.grammars.tend()
        self.engine.check()

    @precondition(lambda self: self.unfinished)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.unfinished))
        self.given_up.add(name)
        self.engine.cancel(name)
        self.engine.check()

    @precondition(lambda self: self.unfinished)
    @rule(data=st.data(), paused=st.booleans())
    def pause(self, data: st.DataObject, paused: bool) -> None:
        self.engine.pause(data.draw(st.sampled_from(self.unfinished)), paused=paused)

    @rule(model_id=st.sampled_from(["toy", "draft"]))
    def sleep(self, model_id: str) -> None:
        if model_id == "toy":
            self.given_up |= set(self.unfinished)
        self.engine.sleep_model(model_id)
        self.engine.check()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):  # pragma: no cover
            return
        for name in self.unfinished:
            self.engine.pause(name, paused=False)
        compiler = self.engine.grammars
        while not (compiler._work.empty() and compiler._preparations.empty()):
            self.let_a_grammar_come()  # what nobody waits for any more, too
        assert not self.num_compiling
        run_all(self.engine, self.results)
        for name, request in self.requests.items():
            self._check_answer(request, answer(self.results, name))
        for model in self.engine.stats().models:
            assert model.num_running == model.num_waiting == 0
            assert model.used_kv_bytes == 0 or self.engine.settings.cache_policy == "slots"
        gc.collect(0)
        assert not self.held, "what a reply was held to is kept"
        self.engine.close()

    def _check_answer(self, request: Request, found: Answer) -> None:
        wanted = alone(request, self.has_states)
        if request.id in self.given_up and found[1] in ("cancelled", "error"):
            assert found[0] == wanted[0][: len(found[0])]
            return
        assert found == wanted
        if request.grammar == BAD:
            assert found[1] == "error"
        elif found[1] == "stop" and request.grammar:
            text = b"".join(PIECES[token] for token in found[0]).decode()
            assert re.fullmatch(GRAMMARS[request.grammar], text)


TestGrammarSchedules = GrammarSchedules.TestCase
TestGrammarSchedules.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
