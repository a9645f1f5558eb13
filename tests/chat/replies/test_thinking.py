"""Thoughts and answer are told apart while they stream, and no part of a tag is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.chat.messages import Message
from puna.chat.replies.old_thoughts import without_old_thoughts
from puna.chat.replies.pieces import Piece
from puna.chat.replies.tagged import Reading, TaggedParser
from puna.chat.replies.thinking import THINK, ThinkingTags, ends_with_open_tag

pytestmark = pytest.mark.unit


def stream(pieces, *, tags=THINK, started=False):
    parser = TaggedParser(Reading(thinking=tags, starts_thinking=started))
    thoughts = [parser.add(piece) for piece in pieces] + [parser.flush()]
    return "".join(t.thinking for t in thoughts), "".join(t.content for t in thoughts)


def test_text_between_the_tags_is_thinking_and_space_behind_a_tag_is_swallowed():
    assert stream(["\n <think>\n\nhm. \n</think>\n\nYes. \n"]) == ("hm. \n", "Yes. \n")


def test_without_open_tag_everything_is_content_with_its_space():
    assert stream(["  \n", "a <think>b</think> c"]) == ("", "  \na <think>b</think> c")


def test_prompt_may_have_opened_the_tag():
    assert stream(["\nhm</think>\n\nYes"], started=True) == ("hm", "Yes")


def test_nothing_of_a_possible_tag_is_shown_before_it_is_certain():
    parser = TaggedParser(Reading(thinking=THINK))
    assert parser.add(" <thi") == Piece()
    assert parser.add("nk>a") == Piece("a", "")
    assert parser.add("b</") == Piece("b", "")
    assert parser.add("thinking</thin") == Piece("</thinking", "")
    assert parser.add("k>") == Piece()
    assert parser.add(" \n") == Piece()
    assert parser.add("c ") == Piece("", "c ")


def test_unfinished_tags_are_text_at_the_end():
    assert stream(["<thi"]) == ("", "<thi")
    assert stream(["<think>a</th"]) == ("a</th", "")


def test_close_tag_in_the_answer_is_text():
    assert stream(["<think>a</think>b</think>"]) == ("a", "b</think>")


def test_other_tags():
    assert stream(["[T]x[/T]y"], tags=ThinkingTags("[T]", "[/T]")) == ("x", "y")


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<th", "ink>", "</", " ", "\n", "a", "<"]), max_size=10),
    st.booleans(),
)
def test_pieces_do_not_matter(pieces, started):
    text = "".join(pieces)
    assert stream(pieces, started=started) == stream(text, started=started) == stream([text], started=started)


def test_prompt_that_ends_with_the_open_tag():
    assert ends_with_open_tag("<|im_start|>assistant\n<think>\n")
    assert not ends_with_open_tag("<think></think>")


def test_only_answers_before_the_last_user_message_lose_their_thoughts():
    messages = [
        Message("user", "<think>mine</think>1"),
        Message("assistant", "<think>old</think>\n\n2"),
        Message("assistant", "no <think>tag</think> first"),
        Message("user", "3"),
        Message("assistant", "<think>new</think>4"),
    ]
    contents = [message.content for message in without_old_thoughts(messages)]
    assert contents == [
        "<think>mine</think>1",
        "2",
        "no <think>tag</think> first",
        "3",
        "<think>new</think>4",
    ]
    assert messages[1].content == "<think>old</think>\n\n2"
