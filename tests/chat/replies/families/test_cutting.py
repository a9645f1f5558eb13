"""However a reply is cut, the same comes out of it, and never anything of a tag or a call."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.chat.replies.pieces import Piece
from puna.chat.replies.tagged import Reading
from tests.chat.replies.families.examples import EXAMPLES, TESTED
from tests.chat.replies.families.examples.example import Example
from tests.chat.replies.families.tools import TOOLS

pytestmark = pytest.mark.unit

CASES = [(name, example) for name, examples in EXAMPLES.items() for example in examples]
IDS = [f"{name}-{index}" for name, examples in EXAMPLES.items() for index in range(len(examples))]


def read(family: str, example: Example, parts: Sequence[str]) -> tuple[Piece, Piece]:
    """What came out of the parts, and what at their end."""
    thinking = TESTED[family].thinking
    reading = Reading(tools=TOOLS, thinking=thinking, starts_thinking=example.starts_thinking)
    parser = TESTED[family].new_parser(reading)
    piece = Piece()
    for part in parts:
        piece += parser.add(part)
    return piece, parser.flush()


def said(example: Example) -> Piece:
    return Piece(example.thinking, example.content, example.calls)


@pytest.mark.parametrize(("family", "example"), CASES, ids=IDS)
def test_cut_at_every_character(family: str, example: Example) -> None:
    text = example.text
    for parts in ([text], list(text), *([text[:cut], text[cut:]] for cut in range(len(text)))):
        piece, rest = read(family, example, parts)
        assert piece + rest == said(example), parts


@pytest.mark.parametrize(("family", "example"), CASES, ids=IDS)
def test_nothing_comes_out_that_would_not_stay(family: str, example: Example) -> None:
    for end in range(len(example.text)):
        piece, _ = read(family, example, [example.text[:end]])
        assert example.content.startswith(piece.content)
        assert example.thinking.startswith(piece.thinking)
        assert example.calls[: len(piece.calls)] == piece.calls


@given(st.data())
def test_cut_anywhere(data: st.DataObject) -> None:
    family, example = data.draw(st.sampled_from(CASES))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(example.text)), max_size=12)))
    parts = [example.text[a:b] for a, b in itertools.pairwise([0, *cuts, len(example.text)])]
    piece, rest = read(family, example, parts)
    assert piece + rest == said(example)


@pytest.mark.parametrize("family", [name for name in TESTED if name not in ("harmony", "cohere")])
def test_without_tools_all_is_text(family: str) -> None:
    parser = TESTED[family].new_parser(Reading())
    text = "".join(example.text for example in EXAMPLES.get(family, ()))
    assert parser.add(text) == Piece(content=text)
    assert parser.flush() == Piece()
