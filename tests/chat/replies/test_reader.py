"""What takes a parser's time, and what it holds back."""

from __future__ import annotations

import json

import pytest

from puna.chat.replies.calls.json_calls import JsonFormat
from puna.chat.replies.families.in_json.hermes import HERMES
from puna.chat.replies.families.in_json.json_format import json_family
from puna.chat.replies.pieces import Call, Piece
from puna.chat.replies.reader import NotACall, Reader
from puna.chat.replies.tagged import Reading
from puna.chat.tools import Tool, ToolFunction

pytestmark = pytest.mark.unit

TOOLS = [Tool(ToolFunction("f"))]


class Counting(str):
    """Counts how many characters are copied out of texts that came from it."""

    copied = 0

    def __getitem__(self, key: object) -> Counting:
        piece = Counting(super().__getitem__(key))  # type: ignore[index]
        Counting.copied += len(piece)
        return piece

    def __add__(self, other: str) -> Counting:
        Counting.copied += len(self) + len(other)
        return Counting(super().__add__(other))


@pytest.mark.parametrize("junk", ['"\\\\{', "</tool_call>", " \n", "<tool_call"])
def test_every_character_is_copied_a_few_times_only(junk: str) -> None:
    arguments = {"x": junk * 2000}
    text = f"<tool_call>{json.dumps({'name': 'f', 'arguments': arguments})}</tool_call>"
    parser = HERMES.new_parser(Reading(tools=TOOLS))
    Counting.copied = 0
    pieces = [parser.add(Counting(char)) for char in text]
    assert sum((piece.calls for piece in pieces), ()) == (Call("f", arguments),)
    assert Counting.copied < 64 * len(text)


def test_all_that_cannot_be_a_call_comes_out_at_once() -> None:
    parser = json_family(JsonFormat()).new_parser(Reading(tools=TOOLS))
    assert parser.add(' {"na') == Piece()
    assert parser.add("t") == Piece(content=' {"nat')
    assert parser.add("ion\n") == Piece(content="ion\n")
    parser = HERMES.new_parser(Reading(tools=TOOLS))
    assert parser.add("a <tool_cal") == Piece(content="a")
    assert parser.add("endar") == Piece(content=" <tool_calendar")


def test_nothing_is_nested_without_end() -> None:
    reader = Reader()
    reader.feed("[" * 1000)
    with pytest.raises(NotACall):
        next(reader.balanced())
