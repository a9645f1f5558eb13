"""Replies that are held to a grammar: the same alone, under load, preempted and with drafts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puna.engine import EngineCore, Request, SamplingParams, StepOutput
from tests.engine.toy import BLOCK_BYTES, POISON, VOCABULARY, ToyModel, toy_engine, toy_request
from tests.text.reference import table_of

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


class ToyTokens:
    """The vocabulary of the toy model: text is cut into the longest tokens, from the left."""

    vocab_size = VOCABULARY
    end_of_generation = frozenset({END})

    def token_bytes(self, token: int) -> bytes:
        return PIECES[token]

    def is_special(self, token: int) -> bool:
        return token in HIDDEN

    def encode_within(self, text: str) -> list[int]:
        left, tokens = text.encode(), []
        while left:
            known = [t for t in range(CONTROL) if left.startswith(PIECES[t])]
            token = max(known, key=lambda t: len(PIECES[t]))
            tokens.append(token)
            left = left[len(PIECES[token]) :]
        return tokens


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
    engine = toy_engine(model, **fields)
    engine.set_token_table("toy", TABLE, ToyTokens())
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


def held(request_id: str, grammar: str, prompt: list[int], **fields: object) -> Request:
    return toy_request(request_id, prompt, 60, grammar=grammar, **fields)


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
    num_blocks = data.draw(st.sampled_from([7, 12, 100]))
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
