"""Arguments that are written as text: strings as they are, everything else as JSON.

Where a parameter may be a string or something else, text that can be read as something else is taken for
that. A grammar then lets no string begin like an array or an object that is among the alternatives, nor like
a number if not every number will do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.replies.calls.arguments import parse_json
from puna.chat.replies.calls.parameters import Schema, alternatives, says_nothing_but, type_name
from puna.chat.replies.reader import NotACall, Reader, Steps, Tags
from puna.chat.tools import Tool

_WORDS = {"true": True, "false": False, "null": None}
_FIRST = {"array": r"\[", "object": r"\{", "integer": r"\-0-9", "number": r"\-0-9"}
_NESTED = ("array", "object")
_ANYTHING: Schema = {"type": "string"}
_LONGEST = 10_000  # characters or items that are counted
_PART = re.compile(
    r"(?P<special>\\[1-9bBk]|[\^$]|\(\?<?[=!])|\\.|\[(?:\\.|[^\]])*\]|(?P<choice>\|)", re.DOTALL
)
_GROUP = re.compile(r"\((?:\\.|\[(?:\\.|[^\]])*\]|[^()\\\[])*\)", re.DOTALL)
_CLASS = re.compile(r"\\(.)", re.DOTALL)
_CLASSES = {"d": "[0-9]", "D": "[^0-9]", "w": "[A-Za-z0-9_]", "W": "[^A-Za-z0-9_]"}


def read_value(reader: Reader, schema: Schema, close: str, *, line: str = "") -> Steps[Any]:
    """Takes a value and the tag behind it. line: what may stand on either side. Raises NotACall."""
    found = alternatives(schema)
    parts: list[str] = []
    if any(_is_nested(each) for each in found) and (yield from reader.comes_behind_space("{[")):
        yield from reader.space()
        parts.append((yield from reader.balanced()))
    yield from reader.up_to(Tags([close]), parts.append)
    return value_of_text("".join(parts).removeprefix(line).removesuffix(line), schema)


def value_of_text(text: str, schema: Schema) -> Any:
    """What the text can be read as, if the schema allows that; else the text itself. Only types are looked
    at, and values that are given one by one.
    """
    found = alternatives(schema)
    if all(_is_string(each) for each in found):
        return text
    word = text.strip().lower()
    try:
        value = _WORDS[word] if word in _WORDS else parse_json(text)
    except NotACall:
        return text
    return value if any(_fits(value, each) for each in found) else text


def text_up_to(g: GrammarBuilder, tool: Tool, schema: Schema, close: str, *, line: str = "") -> str:
    """A term: a value of one of the tool's parameters, and the tag behind it.

    schema: the parameter's. line: what stands on either side of a value. What is not held to the schema:
    strings with a pattern that has anchors elsewhere than at its ends, or looks around.
    """
    found = alternatives(schema)
    if any(says_nothing_but(each) for each in found):
        found = [_ANYTHING]
    strings = [each for each in found if _is_string(each)]
    others = [each for each in found if not _is_string(each)]
    if any(says_nothing_but(each, "type", "format") for each in strings):
        strings, others = [], [each for each in others if not _is_any_scalar(each)]
        terms = [_free_text(g, others, close, line)]
    else:
        terms = [_held_text(g, each, close, line) for each in strings]
    terms += [f"{g.literal(line)} {_json(g, tool, each)} {g.literal(line + close)}" for each in others]
    return g.rule("value", " | ".join(dict.fromkeys(terms)))


def _free_text(g: GrammarBuilder, others: Sequence[Schema], close: str, line: str) -> str:
    first = "".join({_FIRST.get(each.get("type", ""), r"\[\{\"\-0-9"): None for each in others})
    if not first:  # the line behind it is a part of the text, for masks that are quick to compute
        return f"{g.literal(line)} {g.ended_text((close, ''))}"
    text = rf"({line}(?s:\s*([^\s{first}].*)?))?"
    return g.text_up_to(line + close, without(g, [text], close))


def _held_text(g: GrammarBuilder, schema: Schema, close: str, line: str) -> str:
    if "const" in schema:
        return f"{g.literal(line)} {g.plain(schema['const'])} {g.literal(line + close)}"
    patterns = [line + pattern for pattern in string_patterns(schema)]
    return g.text_up_to(line + close, without(g, patterns, close))


def without(g: GrammarBuilder, patterns: Sequence[str], tag: str) -> str:
    """The body of a terminal: text that matches all patterns, and does not have the tag in it."""
    body = " & ".join(g.regex(pattern) for pattern in patterns)
    return f"({body} & ~{g.regex(f'(?s:.*{re.escape(tag)}.*)')})"


def string_patterns(schema: Schema) -> list[str]:
    """Regular expressions all of which a string matches as a whole."""
    patterns = [f"(?s:.{{{bound_of(schema, 'minLength') or 0},{bound_of(schema, 'maxLength') or ''}}})"]
    if schema.get("maxLength") == 0:
        return [""]
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return patterns
    begins, ends = pattern.startswith("^"), re.search(r"(?<!\\)(?:\\\\)*\$\Z", pattern) is not None
    core = pattern[1 if begins else 0 : -1 if ends else None]
    found = {match.lastgroup for match in _PART.finditer(_GROUP.sub("", core))}
    inner = {match.lastgroup for match in _PART.finditer(core)}
    if "special" not in inner and not ("choice" in found and (begins or ends)):
        ascii_core = _CLASS.sub(lambda match: _CLASSES.get(match[1], match[0]), core)
        patterns.append(("" if begins else "(?s:.*)") + f"(?:{ascii_core})" + ("" if ends else "(?s:.*)"))
    return patterns


def bound_of(schema: Schema, keyword: str) -> int | None:
    """A number of characters or items that can be counted; None if there is none."""
    value = schema.get(keyword)
    return value if type(value) is int and 0 <= value <= _LONGEST else None


def _json(g: GrammarBuilder, tool: Tool, schema: Schema) -> str:
    value = schema.get("const")
    if "const" in schema and not isinstance(value, list | dict):
        return g.plain(json.dumps(value))
    return g.argument(tool.function, schema)


def _is_string(schema: Schema) -> bool:
    return isinstance(schema["const"], str) if "const" in schema else schema.get("type") == "string"


def _is_nested(schema: Schema) -> bool:
    """Whether values are arrays or objects: they end where their brackets do."""
    return isinstance(schema["const"], list | dict) if "const" in schema else schema.get("type") in _NESTED


def _is_any_scalar(schema: Schema) -> bool:
    """A value that need not be told from strings by a grammar: text that reads as one is one."""
    if "const" in schema:
        return True
    return schema.get("type") in ("null", "boolean", "integer", "number") and says_nothing_but(schema, "type")


def _fits(value: Any, schema: Schema) -> bool:
    if "const" in schema:
        return type_name(value) == type_name(schema["const"]) and value == schema["const"]
    kind, wanted = type_name(value), schema.get("type")
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return wanted is None or kind == wanted or (kind == "integer" and wanted == "number")
