"""Replies that are held to a grammar: the same alone, under load, preempted and with drafts."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puna._native import GrammarTokenizer
from puna.engine import EngineCore, Request, SamplingParams, StepOutput
from puna.engine.grammars.compiling import compile_grammar
from puna.engine.grammars.limits import COMPILE_S, MAX_GRAMMAR_CHARS
from puna.engine.grammars.vocabulary import BYTES_PER_TOKEN, GrammarTokens, grammar_tokenizer
from puna.tokenizer import load_tokenizer
from tests.engine.toy import BLOCK_BYTES, POISON, VOCABULARY, ToyModel, toy_engine, toy_request
from tests.text.reference import table_of
from tests.tokenizer.vocabularies import CONTROL as CONTROL_KIND
from tests.tokenizer.vocabularies import NORMAL

pytestmark = pytest.mark.native

END, CONTROL = VOCABULARY - 2, VOCABULARY - 3
_SINGLES = [char.encode() for char in 'abcdefghijklmnopqrstuvwxyz0123456789{}[]":, \n']
_WORDS = [
    b"ab",
    b"abc",
    b"bc",
    b'{"',
    b'":',
    b'",',
    b'"}',
    b"name",
    b"na",
    b"me",
    b"true",
    b"tr",
    b"12",
    b"  ",
]
PIECES = [*_SINGLES, *_WORDS]
PIECES += [b"w%d" % number for number in range(CONTROL - len(PIECES))]
PIECES += [b"<control>", b"<end>", b"<poison>"]
HIDDEN = frozenset({CONTROL, END, POISON})
TABLE = table_of(PIECES, HIDDEN)


TOKENIZER = load_tokenizer(
    {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [piece.decode().replace(" ", "▁") for piece in PIECES],
        "tokenizer.ggml.token_type": [CONTROL_KIND if t in HIDDEN else NORMAL for t in range(VOCABULARY)],
        "tokenizer.ggml.scores": [float(len(piece)) for piece in PIECES],
        "tokenizer.ggml.eos_token_id": END,
    }
)

# A grammar, and what Python says of the same text.
GRAMMARS = {
    'start: "abcname" /[a-c]{2,9}/ "12true12abc" /[0-9]+/': r"abcname[a-c]{2,9}12true12abc[0-9]+",
    r'start: "{\"name\": \"" /[a-m]{1,20}/ "\", \"true\": " ("true" | "12") "}"': (
        r'\{"name": "[a-m]{1,20}", "true": (true|12)\}'
    ),
    'start: item ("," item)*\nitem: "[" item? "]" | "abcabcabc"': r"[\[\],abc]+",
    "start: /(ab|abc|c)*/ /[0-9]{3}/ /(name)*/": r"(ab|abc|c)*[0-9]{3}(name)*",
}


class Answer:
    def __init__(self, outputs: list[StepOutput]) -> None:
        last = outputs[-1]
        self.text = "".join(output.text for output in outputs)
        self.tokens = [token for output in outputs for token in output.tokens]
        self.logprobs = [(p.token, p.logprob) for output in outputs for p in output.logprobs or []]
        self.reason, self.error, self.stats = last.finish_reason, last.error, last.stats

    def key(self) -> object:
        return self.text, self.tokens, self.logprobs, self.reason, self.error


def grammar_engine(model: ToyModel, **fields: object) -> EngineCore:
    """With a second model, "draft", which says mostly the same."""
    engine = toy_engine(model, **fields)
    engine.set_token_table("toy", TABLE, TOKENIZER)
    engine.attach_model("draft", ToyModel(is_habitual=True, clock=model.clock))
    return engine


def answers_of(engine: EngineCore, requests: list[Request]) -> list[Answer]:
    outputs: dict[str, list[StepOutput]] = {request.id: [] for request in requests}
    for request in requests:
        engine.submit(request)
    while engine.has_work:
        for output in engine.step():
            outputs[output.request_id].append(output)
        engine.check()
    return [Answer(parts) for parts in outputs.values()]


def held(request_id: str, grammar: str, prompt: list[int], max_tokens: int = 60, **fields: object) -> Request:
    return toy_request(request_id, prompt, max_tokens, grammar=grammar, **fields)


def test_a_reply_is_what_the_grammar_allows_and_ends_with_it():
    for grammar, pattern in GRAMMARS.items():
        requests = [
            held(str(seed), grammar, [seed, 1, 2], sampling=SamplingParams(temperature=1.5, seed=seed))
            for seed in range(8)
        ]
        for answer in answers_of(grammar_engine(ToyModel()), requests):
            assert answer.reason in ("stop", "length"), answer.error
            assert re.fullmatch(pattern, answer.text) or answer.reason == "length"


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_bits_are_those_of_single_steps(data: st.DataObject):
    model = {"is_habitual": True, "state_bytes": data.draw(st.sampled_from([0, BLOCK_BYTES]))}
    requests = [
        held(
            str(index),
            data.draw(st.sampled_from([*GRAMMARS, ""])),
            data.draw(st.lists(st.integers(0, 90), min_size=1, max_size=40)),
            num_draft=data.draw(st.sampled_from([0, 3, None])),
            draft_model_id=data.draw(st.sampled_from([None, "draft"])),
            stop=data.draw(st.sampled_from([[], ["0"], ["ec"]])),
            sampling=SamplingParams(
                temperature=data.draw(st.sampled_from([0.0, 0.7, 1.5])),
                top_k=data.draw(st.sampled_from([0, 5])),
                repeat_penalty=data.draw(st.sampled_from([1.0, 1.3])),
                num_logprobs=data.draw(st.sampled_from([-1, 2])),
                seed=index,
            ),
        )
        for index in range(data.draw(st.integers(1, 6)))
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("puna.engine.core.add_drafts", lambda *_, **__: None)
        alone = [answers_of(grammar_engine(ToyModel(**model)), [request])[0] for request in requests]
    assert all(answer.stats.drafted_tokens == 0 for answer in alone)
    num_blocks = data.draw(st.sampled_from([9, 14, 100]))
    together = grammar_engine(ToyModel(step_s=0.050, **model), num_blocks=num_blocks)
    assert [a.key() for a in answers_of(together, requests)] == [a.key() for a in alone]


def test_what_is_forced_is_drafted_and_right_whatever_is_asked_of_drafts():
    [grammar, *_] = GRAMMARS
    engine = grammar_engine(ToyModel(step_s=0.050))
    answers_of(engine, [toy_request("costs", [1])])
    for answer in answers_of(engine, [held(str(n), grammar, [n, 3], num_draft=0) for n in range(3)]):
        assert answer.stats.drafted_tokens >= 3
        assert answer.stats.accepted_tokens == answer.stats.drafted_tokens


def test_a_grammar_that_is_none_ends_its_request_alone():
    requests = [held("bad", "start: nowhere", [1]), held("good", 'start: "abc"', [1])]
    bad, good = answers_of(grammar_engine(ToyModel()), requests)
    assert bad.reason == "error"
    assert "nowhere" in bad.error
    assert (good.text, good.reason) == ("abc", "stop")


def test_control_tokens_are_shown_where_asked_for():
    grammar = f'start: "ab" <[{CONTROL}]> "c"'
    shown, hidden = (
        answers_of(grammar_engine(ToyModel()), [held("a", grammar, [1], shown_tokens=tokens)])[0]
        for tokens in ([CONTROL, END], [])
    )
    assert (shown.text, hidden.text) == ("ab<control>c", "abc")


def test_a_reply_that_only_repeats_itself_is_cut_and_not_complete():
    [answer] = answers_of(grammar_engine(ToyModel()), [held("a", 'start: "' + "z" * 50 + '"', [1])])
    assert (answer.text, answer.reason) == ("z" * 31, "length")


def test_the_end_of_the_grammar_is_the_end_whatever_the_stop_tokens_are():
    [answer] = answers_of(grammar_engine(ToyModel()), [held("a", 'start: "ab"', [1], stop_tokens=[])])
    assert (answer.text, answer.reason) == ("ab", "stop")


class Compiling:
    """An engine whose grammars come when pump() says so, and a request that waits for one."""

    def __init__(self, *, is_prepared: bool = True) -> None:
        self.model = ToyModel()
        self.engine = grammar_engine(self.model)
        self.ready: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.engine.grammars.use_event_loop(self.ready.put)
        self.engine.submit(held("a", 'start: "abc" /[0-9]/', list(range(40))))
        if is_prepared:
            self.pump()

    def weight_bytes(self) -> int:
        return sum(model.weight_bytes for model in self.engine.stats().models)

    def pump(self) -> None:
        self.ready.get(timeout=60)()

    def run(self) -> list[StepOutput]:
        outputs = []
        while self.engine.has_work:
            outputs += self.engine.step()
            self.engine.check()
        return outputs


def test_the_prompt_is_computed_while_the_grammar_is_compiled():
    compiling = Compiling()
    assert compiling.run() == []
    assert sum(map(sum, compiling.model.steps)) == 39
    compiling.pump()
    assert re.fullmatch("abc[0-9]", "".join(output.text for output in compiling.run()))


def test_a_request_that_is_cancelled_while_its_grammar_is_compiled_leaves_nothing():
    compiling = Compiling()
    compiling.engine.step()
    compiling.engine.cancel("a")
    assert [output.finish_reason for output in compiling.run()] == ["cancelled"]
    compiling.pump()
    assert compiling.run() == []
    assert all(model.num_running == model.num_waiting == 0 for model in compiling.engine.stats().models)


def test_what_nobody_waits_for_any_more_is_not_compiled(monkeypatch: pytest.MonkeyPatch):
    """Two threads are busy with others; who comes back meanwhile is served."""
    compiled, gate = [], threading.Semaphore(0)

    def compile_slowly(tokenizer: GrammarTokenizer, text: str) -> object:
        gate.acquire(timeout=60)
        compiled.append(text)
        return compile_grammar(tokenizer, text)

    monkeypatch.setattr("puna.engine.grammars.compiling.compile_grammar", compile_slowly)
    compiling = Compiling()
    for name, letter in zip("bcde", "bcdc", strict=True):
        compiling.engine.submit(held(name, f'start: "{letter}"', [1]))
    compiling.engine.cancel("c")
    compiling.engine.cancel("d")
    for _ in range(3):
        gate.release()
    for _ in range(4):
        compiling.pump()
    texts = {output.request_id: output.text for output in compiling.run() if output.text}
    assert (texts["b"], texts["e"], len(compiled)) == ("b", "c", 3)


def test_a_grammar_that_takes_too_long_is_not_waited_for():
    compiling = Compiling()
    compiling.run()
    assert 0 < compiling.engine.grammars.tend() <= COMPILE_S
    compiling.model.clock.now_s += COMPILE_S
    assert compiling.engine.grammars.tend() is None
    [output] = compiling.run()
    assert output.finish_reason == "error"
    assert "not compiled within" in output.error
    compiling.pump()
    assert compiling.run() == []


def test_the_vocabulary_is_prepared_once_and_its_time_does_not_count(monkeypatch: pytest.MonkeyPatch):
    prepared: list[GrammarTokens] = []

    def prepare(tokens: GrammarTokens) -> GrammarTokenizer:
        prepared.append(tokens)
        return grammar_tokenizer(tokens)

    monkeypatch.setattr("puna.engine.grammars.compiling.grammar_tokenizer", prepare)
    compiling = Compiling(is_prepared=False)
    compiling.engine.submit(held("b", 'start: "b"', [1]))
    compiling.model.clock.now_s += 10 * COMPILE_S
    assert compiling.engine.grammars.tend() is None
    compiling.pump()
    assert compiling.engine.grammars.tend() == COMPILE_S
    compiling.pump()
    compiling.pump()
    ends = {output.request_id: output.finish_reason for output in compiling.run() if output.finish_reason}
    assert (ends, len(prepared)) == ({"a": "stop", "b": "stop"}, 1)


def test_a_model_that_sleeps_while_its_vocabulary_is_prepared_keeps_none():
    compiling = Compiling(is_prepared=False)
    compiling.engine.sleep_model("toy")
    compiling.pump()
    assert [output.finish_reason for output in compiling.run()] == ["error"]
    assert compiling.engine.memory.budget.weight_bytes == 0
    compiling.engine.submit(held("b", 'start: "b"', [1]))
    compiling.pump()
    compiling.pump()
    assert "".join(output.text for output in compiling.run()) == "b"
    assert compiling.weight_bytes() == BYTES_PER_TOKEN * VOCABULARY


def chain(count: int) -> str:
    rules = "\n".join(f"r{number}: r{number + 1}" for number in range(count))
    return f'start: r0\n{rules}\nr{count}: "ab"'


HOSTILE = {
    "ambiguous": 'start: e\ne: e e | "a" | "b" | e e e',
    "nothing but choices": "start: " + " ".join(["(a?)"] * 2000) + '\na: "y" | "z"',
    "long chains": chain(16_000),
    "many forced bytes": 'start: "abc"{1000000}',
    "intersections": "start: X\nX: /.*a.{15}/ & /.*b.{15}c/ & ~/.*abc.*/",
    "nothing": "start: /[^\\x00-\\x{10FFFF}]/",
    "too long": "start: " + "x" * MAX_GRAMMAR_CHARS,
}


def test_hostile_grammars_end_alone_and_leave_others_as_they_are():
    [grammar, *_] = GRAMMARS
    good = held("good", grammar, [5], sampling=SamplingParams(temperature=1.5, seed=3))
    [alone] = answers_of(grammar_engine(ToyModel()), [good])
    endless = SamplingParams(temperature=1.5, seed=1, logit_bias={END: -100.0})
    requests = [held(name, text, [2, 3], 5000, sampling=endless) for name, text in HOSTILE.items()]
    *hostile, beside = answers_of(grammar_engine(ToyModel(context_length=6000)), [*requests, good])
    assert beside.key() == alone.key()
    ends = dict(zip(HOSTILE, hostile, strict=True))
    assert ends.pop("long chains").text == "ab"
    assert {name: answer.reason for name, answer in ends.items()} == dict.fromkeys(ends, "error")
