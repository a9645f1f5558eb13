"""Calls written as JSON objects with a name and arguments."""

from __future__ import annotations

from typing import Any

from puna.chat.replies.arguments import as_object, parse_json
from puna.chat.replies.pieces import Call
from puna.chat.replies.reader import NotACall, Steps
from puna.chat.replies.tagged import CallReader

_ARGUMENTS = ("arguments", "parameters")


def read_json_calls(reader: CallReader, close: str) -> Steps[None]:
    """Takes one object after the other, or a list of them, and the closing tag if it is there. Each call is
    given as soon as its object is whole. Raises NotACall if there is none.
    """
    yield from reader.space()
    in_list = yield from reader.skip("[")
    while True:
        yield from reader.space()
        call = call_of(parse_json((yield from reader.balanced())))
        reader.give(call.name, call.arguments)
        yield from reader.space()
        if not (yield from reader.skip(",")) and not (yield from reader.comes("{")):
            break
    if in_list:
        yield from reader.skip("]")
        yield from reader.space()
    yield from reader.skip(close)


def call_of(value: Any) -> Call:
    """`{"name": ..., "arguments": {...}}`, also with "parameters", arguments as a string, or all of it within
    "function". Raises NotACall for anything else.
    """
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        raise NotACall
    arguments = next((value[key] for key in _ARGUMENTS if key in value), None)
    return Call(value["name"], as_object(arguments))
