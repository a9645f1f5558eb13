"""Calls in Python's syntax are read as Python reads them, and what the grammar accepts fits the tools."""

from __future__ import annotations

import pytest

from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.replies.calls.python_calls import calls_term, parse_calls
from puna.chat.replies.pieces import Call
from tests.chat.replies.families.tools import TOOLS, check_calls
from tests.chat.replies.sampling import byte_vocabulary, draw

pytestmark = pytest.mark.unit


def test_names_keywords_and_literals_of_both_languages():
    text = """[a.b-c(x='it\\'s', y="\\u00e4\\n\\U0001F600\\ud83d\\ude00", z=[1, -2.5e3, True, null, None]),
      f(d={"k": {'l': (1,)}, 2: false}, "odd name"=1e999,), g()]"""
    assert parse_calls(text) == [
        Call("a.b-c", {"x": "it's", "y": "ä\n😀😀", "z": [1, -2500.0, True, None, None]}),
        Call("f", {"d": {"k": {"l": [1]}, "2": False}, "odd name": 1.7976931348623157e308}),
        Call("g", {}),
    ]


def test_a_call_per_line():
    assert parse_calls("\nf(a=1)\ng(b='\n')\n") == [Call("f", {"a": 1}), Call("g", {"b": "\n"})]


NO_CALLS = ["", "[]", "f", "f(", "f(1)", "f(a=)", "f(a=b)", "f(a='x)", "[f()", "f()]", "f(a=1 b=2)", "f() x"]
TOO_MUCH = ["f(a=" + "[" * 5000, "f(a=" + "9" * 5000 + ")", "f(a='\\Uffffffff')"]


@pytest.mark.parametrize("text", [*NO_CALLS, *TOO_MUCH])
def test_what_is_no_call(text):
    assert parse_calls(text) is None


def test_a_long_argument_takes_one_pass():
    text = "x\\n'\"" * 50_000
    assert parse_calls(f"f(a={text!r})") == [Call("f", {"a": text})]


def test_replies_of_the_grammar_are_calls_that_fit():
    vocabulary = byte_vocabulary()
    builder = GrammarBuilder(vocabulary.control.get)
    grammar = builder.grammar(f'"[" {calls_term(builder, TOOLS, parallel=True)} "]"')
    drawn = [draw(grammar, vocabulary, seed) for seed in range(30)]
    replies = [reply for reply in drawn if reply is not None]
    assert len(replies) > 20
    for reply in replies:
        calls = parse_calls(reply)
        assert calls, reply
        check_calls(calls)
