"""Values as Gemma writes them: like JSON, but keys have no quotes, and strings stand between tags.

What cannot be said there: a string that has the tag in it. What the grammar leaves out of schemas: further
properties beside those that are named, how many properties there are, `prefixItems`, `contains`,
`uniqueItems`, what has several keywords that combine schemas, and what text_values.py says of patterns.
"""

from __future__ import annotations

import json
import re
from typing import Any

from puna.chat.grammars.builder import GrammarBuilder, one_of
from puna.chat.replies.calls.arguments import parse_json
from puna.chat.replies.calls.parameters import (
    Parameter,
    Schema,
    alternatives,
    joined,
    parameters_within,
    says_nothing_but,
    with_definitions,
)
from puna.chat.replies.calls.text_values import bound_of, string_patterns, without
from puna.chat.replies.reader import NotACall
from puna.chat.tools import Tool

_MAX_DEPTH = 100
_KEY = r"[^,:{}\[\]<>\s\"\x00-\x1f]+"
_WORD = re.compile(r"[^,:{}\[\]\s]+")
_SPACE = re.compile(r"\s*")


def read_braced(text: str, quote: str) -> dict[str, Any]:
    """Takes time linear in the text. quote: the tag around strings. Raises NotACall."""
    reader = _Reader(text, quote)
    value = reader.value(0)
    if not isinstance(value, dict) or not reader.ended:
        raise NotACall
    return value


class BracedGrammar:
    """Terms for values of a tool's parameters. quote: the tag around strings."""

    def __init__(self, g: GrammarBuilder, tool: Tool, quote: str) -> None:
        self._g = g
        self._tool = tool
        self._quote = quote
        self._values: dict[str, str] = {}

    def members(self, parameters: list[Parameter]) -> str:
        """A term: an object with these."""
        members = [
            (self._g.rule("member", f'{self._key(each.name)} ":" {self.value(each.schema)}'), each.required)
            for each in parameters
        ]
        return f'"{{" {joined(self._g, members, chr(34) + "," + chr(34))} "}}"'

    def value(self, schema: Schema) -> str:
        """A term. schema: stands for itself."""
        key = json.dumps(schema)
        if key not in self._values:

            def body(this: str) -> str:
                self._values[key] = this
                terms = dict.fromkeys(self._alternative(each) for each in alternatives(schema))
                return " | ".join(terms)

            self._g.recursive_rule("value", body)
        return self._values[key]

    def _alternative(self, schema: Schema) -> str:
        if "const" in schema:
            return self._constant(schema["const"])
        match schema.get("type"):
            case "string":
                return self._string(schema)
            case "boolean":
                return '"true" | "false"'
            case "null":
                return '"null"'
            case "integer" | "number":
                return self._g.argument(self._tool.function, schema)
            case "array":
                return self._array(schema)
            case "object":
                return self._object(schema)
        return one_of([self._alternative({"type": kind}) for kind in _TYPES])

    def _constant(self, value: Any) -> str:
        match value:
            case str():
                return f"{self._open} {self._g.plain(value)} {self._open}"
            case list():
                return f'"[" {_separated([self._constant(item) for item in value])} "]"'
            case dict():
                members = [f'{self._key(key)} ":" {self._constant(item)}' for key, item in value.items()]
                return f'"{{" {_separated(members)} "}}"'
        return self._g.plain(json.dumps(value))

    def _string(self, schema: Schema) -> str:
        if says_nothing_but(schema, "type", "format"):
            return f"{self._open} {self._g.ended_text((self._quote, ''))}"
        text = without(self._g, string_patterns(schema), self._quote)
        return f"{self._open} {self._g.text_up_to(self._quote, text)}"

    def _array(self, schema: Schema) -> str:
        shortest, longest = bound_of(schema, "minItems") or 0, bound_of(schema, "maxItems")
        items = schema.get("items", {})
        if longest == 0 or items is False:
            return '"[]"'
        item = self.value(with_definitions(items, schema))
        more = f"{{{max(shortest - 1, 0)},{'' if longest is None else longest - 1}}}"
        listed = f'{item} ("," {item}){more}'
        return f'"[" {listed} "]"' if shortest else f'"[" ({listed})? "]"'

    def _object(self, schema: Schema) -> str:
        if parameters := parameters_within(schema):
            return self.members(parameters)
        further = schema.get("additionalProperties", {})
        if further is False:
            return '"{}"'
        member = f'{self._g.regex(_KEY)} ":" {self.value(with_definitions(further, schema))}'
        return f'"{{" ({member} ("," {member})*)? "}}"'

    def _key(self, name: str) -> str:
        if re.fullmatch(_KEY, name):
            return self._g.plain(name)
        return f"{self._open} {self._g.plain(name)} {self._open}"

    @property
    def _open(self) -> str:
        return self._g.literal(self._quote)


_TYPES = ("string", "number", "boolean", "null", "array", "object")


class _Reader:
    """Raises NotACall."""

    def __init__(self, text: str, quote: str) -> None:
        self._text = text
        self._quote = quote
        self._position = 0

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        self._skip_space()
        return self._position == len(self._text)

    def value(self, depth: int) -> Any:
        """What comes next."""
        if depth > _MAX_DEPTH:
            raise NotACall
        if self._takes("{"):
            members: dict[str, Any] = {}
            while not self._takes("}"):
                key = self._string_or_word()
                self._expect(":")
                members[key] = self.value(depth + 1)
                if not self._takes(","):
                    self._expect("}")
                    break
            return members
        if self._takes("["):
            items: list[Any] = []
            while not self._takes("]"):
                items.append(self.value(depth + 1))
                if not self._takes(","):
                    self._expect("]")
                    break
            return items
        is_string = self._comes(self._quote)
        text = self._string_or_word()
        return text if is_string else _word_value(text)

    def _string_or_word(self) -> str:
        if self._takes(self._quote):
            end = self._text.find(self._quote, self._position)
            if end < 0:
                raise NotACall
            text = self._text[self._position : end]
            self._position = end + len(self._quote)
            return text
        self._skip_space()
        found = _WORD.match(self._text, self._position)
        if found is None:
            raise NotACall
        self._position = found.end()
        return found.group()

    def _comes(self, mark: str) -> bool:
        self._skip_space()
        return self._text.startswith(mark, self._position)

    def _takes(self, mark: str) -> bool:
        if not self._comes(mark):
            return False
        self._position += len(mark)
        return True

    def _expect(self, mark: str) -> None:
        if not self._takes(mark):
            raise NotACall

    def _skip_space(self) -> None:
        found = _SPACE.match(self._text, self._position)
        self._position = found.end() if found else self._position


def _word_value(word: str) -> Any:
    try:
        return parse_json(word)
    except NotACall:
        return word


def _separated(terms: list[str]) -> str:
    return ' "," '.join(terms)
