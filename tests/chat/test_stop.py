"""A stop string ends the text at the same place, however the text is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.chat.stop import StopStrings

pytestmark = pytest.mark.unit


def stream(stops, pieces):
    matcher = StopStrings(stops)
    text = "".join(matcher.add(piece) for piece in pieces)
    return text + matcher.flush(), matcher.found


def test_text_before_the_stop_comes_out_and_nothing_else():
    assert stream(["END"], ["one two EN", "D three", " four"]) == ("one two ", True)


def test_part_of_a_stop_is_held_back_until_it_cannot_be_one():
    matcher = StopStrings(["</s>", "\n\n"])
    assert matcher.add("a</") == "a"
    assert matcher.add("s") == ""
    assert matcher.add("x") == "</sx"
    assert matcher.add("b\n") == "b"
    assert matcher.flush() == "\n"
    assert not matcher.found


def test_text_that_cannot_begin_a_stop_is_never_held_back():
    matcher = StopStrings(["STOP"])
    assert matcher.add("hello STO P") == "hello STO P"


def test_stop_that_is_complete_first_wins_over_one_that_begins_earlier():
    assert stream(["abcd", "bc"], ["xabcd"]) == ("xa", True)


def test_longer_of_two_that_end_together_wins():
    assert stream(["bc", "abc"], ["xabcd"]) == ("x", True)


def test_stop_that_begins_inside_a_failed_one_is_found():
    assert stream(["aab"], ["a", "a", "a", "b"]) == ("a", True)


def test_empty_stops_mean_nothing():
    assert stream(["", ""], ["text"]) == ("text", False)


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("abc", max_size=5), max_size=8),
)
def test_pieces_do_not_matter(stops, pieces):
    assert stream(stops, pieces) == stream(stops, list("".join(pieces)))


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3), st.text("abc", max_size=20))
def test_ends_where_the_first_stop_is_complete(stops, text):
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)]
    if not ends:
        assert stream(stops, [text]) == (text, False)
    else:
        longest = max(len(stop) for stop in stops if text[: ends[0]].endswith(stop))
        assert stream(stops, [text]) == (text[: ends[0] - longest], True)
