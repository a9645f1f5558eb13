"""Tokens become text where they are made: the same text and the same end, however many a step brings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from puna._native import NativeError, TextStream, add_tokens
from tests.text.reference import added, expected, first_stop, stream, table_of

pytestmark = pytest.mark.native

# Split characters, surrogates as bytes, overlong forms, beyond Unicode, a byte order mark, space.
BREAKERS = [
    b"\xf0\x9f\x98\x80", b"\xf0\x9f", b"\x98\x80", b"\xf0", b"\x9f\x98", b"\x80", b"\xff", b"\xfe",
    b"\xed\xa0\x80", b"\xed", b"\xa0", b"\xed\x9f\xbf", b"\xc0\xaf", b"\xe0\x80", b"\xe0\xa0", b"\xf4\x90",
    b"\xf4\x8f\xbf\xbf", b"\xef\xbb\xbf", b"\xef\xbf\xbd", b"\xe2\x82", b"\xac", b"a", b"ab", b"b", b" a",
    b"a\n", b"", b"\xc3", b"\xa9", "é".encode(), "👩‍👩‍👧".encode(),
]  # fmt: skip
TABLE = table_of(BREAKERS)
STOPS = st.lists(st.text("ab é😀\ufffd\n", max_size=4), max_size=4)
PIECES = st.lists(st.binary(max_size=4) | st.sampled_from(BREAKERS), min_size=1, max_size=8)


@st.composite
def steps_of(draw: st.DrawFn, num_tokens: int) -> list[list[int]]:
    return draw(st.lists(st.lists(st.integers(0, num_tokens - 1), max_size=4), max_size=20))


def flat(steps: list[list[int]]) -> list[int]:
    return [token for step in steps for token in step]


@given(STOPS, steps_of(len(BREAKERS)))
def test_the_text_is_what_decoding_all_at_once_gives(stops: list[str], steps: list[list[int]]):
    assert stream(TABLE, stops, [*steps, []]) == expected(BREAKERS, stops, flat(steps))


@given(PIECES, STOPS, st.data())
def test_any_vocabulary(pieces: list[bytes], stops: list[str], data: st.DataObject):
    steps = data.draw(steps_of(len(pieces)))
    assert stream(table_of(pieces), stops, [*steps, []]) == expected(pieces, stops, flat(steps))


@given(st.lists(st.text("ab", max_size=6), max_size=5), st.text("abc", max_size=60))
@example(["abab", "ab" * 3], "aababcababab")
@example(["aab"], "aaab")
@example(["abcd", "bc"], "xabcd")
@example(["bc", "abc"], "xabcd")
@example(["aaa", "aa"], "baaa")
def test_the_stop_string_that_is_complete_first_ends_the_text(stops: list[str], text: str):
    letters = [b"a", b"b", b"c", b"x", b"d"]
    tokens = [letters.index(letter.encode()) for letter in text]
    reply = stream(table_of(letters), stops, [[token] for token in tokens] + [[]])
    stop = first_stop(text, stops)
    if stop is not None:
        assert (reply.text, reply.ends) == (text[:stop], True)
        assert reply.tokens == tokens[:stop]


def test_a_character_comes_with_all_its_tokens_when_it_is_complete():
    state = TextStream(table_of([b"a", b"\xf0\x9f", b"\x98", b"\x80b"]))
    assert added(state, [0, 1]) == ("a", [0], 2, False)
    assert added(state, [2]) == ("", [], 1, False)
    assert added(state, [3]) == ("😀b", [1, 2, 3], 1, False)


def test_a_reply_cut_within_a_character_ends_before_it():
    state = TextStream(table_of([b"a", b"\xf0\x9f"]))
    assert added(state, [0, 1], is_last=True) == ("a", [0, 1], 2, False)


def test_what_may_be_a_stop_string_waits_until_it_cannot():
    state = TextStream(table_of([b"a</", b"s", b"x", b">b"]), ["</s>"])
    assert added(state, [0]) == ("a", [0], 1, False)
    assert added(state, [1]) == ("", [], 1, False)
    assert added(state, [2]) == ("</sx", [1, 2], 1, False)
    assert added(state, [0]) == ("a", [0], 1, False)
    assert added(state, [1, 3, 2]) == ("", [], 2, True)


def test_what_waited_comes_out_at_the_end():
    state = TextStream(table_of([b"a</"]), ["</s>"])
    assert added(state, [0], is_last=True) == ("a</", [0], 1, False)


def test_control_tokens_go_with_the_text_and_show_nothing():
    state = TextStream(table_of([b"a", b"<|im_end|>"], frozenset({1})), ["<|im_end|>"])
    assert added(state, [0, 1]) == ("a", [0], 2, False)
    assert added(state, [0]) == ("a", [1, 0], 1, False)


def test_tokens_beyond_the_table_show_nothing():
    state = TextStream(table_of([b"a"]))
    assert added(state, [7, 0]) == ("a", [7, 0], 2, False)


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_a_reply_that_repeats_itself_ends_at_the_same_token_whatever_the_steps(size: int):
    table = table_of([b"the", b" ab", b"ab\n"])
    tokens = [0, 1, *[1, 2] * 40]
    reply = stream(table, [], [tokens[i : i + size] for i in range(0, len(tokens), size)])
    assert (reply.num_taken, reply.ends) == (32, True)
    assert reply.tokens == tokens[:32]


def test_thirty_equal_tokens_may_be_meant():
    reply = stream(table_of([b"-", b"x"]), [], [[0] * 30, [1], [0] * 30])
    assert (reply.num_taken, reply.ends) == (61, False)


def test_white_space_alone_is_repetition_too():
    reply = stream(table_of([b" ", b"\n"]), [], [[0, 1] * 40])
    assert (reply.num_taken, reply.ends) == (31, True)


def test_without_a_table_tokens_come_as_they_come():
    state = TextStream(None, ["a"])
    assert added(state, [5] * 40) == ("", [5] * 40, 40, False)


def test_streams_of_a_batch_are_independent():
    table = table_of([b"a", b"b", b"\xf0"])
    states = [TextStream(table, ["ab"]), TextStream(table), TextStream(table)]
    tokens, starts = np.array([0, 1, 0, 0, 1, 0, 2], np.int32), np.array([0, 3, 6, 7], np.int32)
    assert add_tokens(states, tokens, starts, [4, 4, 1]) == [
        ([0, 1], 2, "stop", "", []),
        ([0, 1, 0], 3, None, "aba", [0, 1, 0]),
        ([2], 1, "length", "", [2]),
    ]


def test_a_stop_token_ends_the_reply_and_does_not_belong_to_it():
    stream = TextStream(table_of([b"a", b"b"]), [], [1, 1 << 40])
    tokens, starts = np.array([0, 0, 1], np.int32), np.array([0, 3], np.int32)
    assert add_tokens([stream], tokens, starts, [3]) == [([0, 0], 3, "stop", "aa", [0, 0])]


def test_streams_without_their_tokens_are_refused():
    with pytest.raises(NativeError, match="every stream needs its tokens"):
        add_tokens([TextStream(TABLE)], np.zeros(0, np.int32), np.zeros(1, np.int32), [1])
    with pytest.raises(NativeError, match="the starts do not fit"):
        add_tokens([TextStream(TABLE)], np.zeros(1, np.int32), np.array([0, 2], np.int32), [1])
    with pytest.raises((NativeError, TypeError)):
        add_tokens([None], np.zeros(1, np.int32), np.array([0, 1], np.int32), [1])  # type: ignore[list-item]


def test_many_long_stop_strings_take_linear_time():
    # By trying each string at each place this would take hours.
    stops = ["a" * n + "b" for n in range(1, 1000)] + ["a" * 100_000 + "c"]
    state = TextStream(table_of([b"a" * 50, b"ac"]), stops)
    for _ in range(4000):
        assert not added(state, [0, 0, 1])[3]
    assert added(state, [0, 0], is_last=True)[0].endswith("a" * 100)
