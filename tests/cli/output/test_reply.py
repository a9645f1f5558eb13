"""A reply on a terminal is wrapped between words, whatever pieces it arrives in."""

from __future__ import annotations

import io
import re
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.cli.run.reply import ReplyDisplay, WordWrap

pytestmark = pytest.mark.unit


def screen(written):
    """What a terminal shows: `\\x1b[nD\\x1b[K` erases the last n columns."""
    lines = [""]
    for piece in re.split(r"(\x1b\[\d+D\x1b\[K|\n)", written):
        if piece == "\n":
            lines.append("")
        elif match := re.fullmatch(r"\x1b\[(\d+)D\x1b\[K", piece):
            lines[-1] = lines[-1][: -int(match[1])]
        else:
            lines[-1] += piece
    return [line.rstrip(" ") for line in lines]


def wrap(pieces, width):
    out = io.StringIO()
    writer = WordWrap(out, width)
    for piece in pieces:
        writer.write(piece)
    return screen(out.getvalue())


def test_a_word_that_does_not_fit_moves_to_the_next_line():
    assert wrap(["The quick br", "own fox ju", "mps"], 12) == ["The quick", "brown fox", "jumps"]


def test_a_word_longer_than_the_line_stays():
    assert wrap(["ab ", "x" * 30, " cd"], 10) == ["ab", "x" * 30, "cd"]


def test_wide_characters_count_twice():
    assert wrap(["ab ", "漢字"], 6) == ["ab", ""] or wrap(["ab ", "漢字"], 7) == ["ab 漢字"]


def test_newlines_of_the_text_stay():
    assert wrap(["a\n\nb c"], 10) == ["a", "", "b c"]


@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1), st.integers(10, 30), st.integers(1, 7))
def test_wraps_as_textwrap_does_for_any_pieces(words, width, size):
    text = " ".join(words)
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert wrap(pieces, width) == textwrap.wrap(text, width)


def test_without_a_terminal_the_text_is_untouched():
    out = io.StringIO()
    display = ReplyDisplay(out, wrap=False)
    display.show("", "a " * 200)
    display.finish()
    assert out.getvalue() == "a " * 200 + "\n"


def test_thinking_that_is_broken_off_is_closed():
    out = io.StringIO()
    display = ReplyDisplay(out, wrap=False)
    display.show("hm", "")
    display.finish()
    assert out.getvalue() == "Thinking...\nhm\n...done thinking.\n\n\n"
