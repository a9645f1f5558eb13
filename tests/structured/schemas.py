"""Varied JSON Schemas, the same every time: nested, recursive, merged, with all that can be enforced."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from typing import Any

NUM_SCHEMAS = 300
_NUM_BOUNDED = 220
_NAMES = [
    "name",
    "id",
    "größe",
    "日本",
    "a b",
    'say "hi"',
    "x/y\\z",
    "",
    "😀",
    "$ref",
    "type",
    "ünï_çødé",
    "tags",
]
_TEXTS = [
    "red",
    "green",
    "bleu ciel",
    "ÄÖÜ",
    "日本語",
    'a "quote"',
    "back\\slash",
    "tab\there",
    "😀",
    "</tool_call>",
]
_PATTERNS = [  # those that bound the length first
    r"^[a-z]{1,8}$",
    r"^\d{4}-\d{2}$",
    r"^(foo|bar|baz)$",
    r"^[A-Z][\w.]{0,5}/[^\s\"]$",
    r"^[äöü日本]{2,5}$",
    r"^#([0-9a-f]{3}|[0-9a-f]{6})$",
    "[a-c]+",
    "^x.*y$",
]
_FORMATS = ["date", "time", "date-time", "ipv4", "uuid", "email"]


@dataclass(frozen=True)
class Case:
    number: int
    schema: dict[str, Any]
    is_bounded: bool
    """No value that fits it is long."""


def all_cases() -> list[Case]:
    return [case(number) for number in range(NUM_SCHEMAS)]


def case(number: int) -> Case:
    is_bounded = number < _NUM_BOUNDED
    return Case(number, _Writer(random.Random(number), is_bounded).root(), is_bounded)


class _Writer:
    def __init__(self, rng: random.Random, is_bounded: bool) -> None:
        self._rng = rng
        self._is_bounded = is_bounded
        self._definitions: dict[str, Any] = {}
        self._is_old = rng.random() < 0.3  # draft 7

    def root(self) -> dict[str, Any]:
        if not self._is_bounded and self._rng.random() < 0.6:
            schema = self._recursive()
        else:
            schema = self._rng.choice(
                [self._object, self._object, self._array, self._merged, self._variants]
            )(0)
        if self._definitions:
            schema = {**schema, self._definitions_key: self._definitions}
        if self._is_old:
            schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "T", **schema}
        return schema

    @cached_property
    def _definitions_key(self) -> str:
        return self._rng.choice(["$defs", "definitions"])

    def _any(self, depth: int) -> Any:
        simple = [self._text, self._integer, self._number, self._enum, self._const, self._plain]
        nested = [
            self._object,
            self._array,
            self._tuple,
            self._optional,
            self._defined,
            self._variants,
            self._merged,
        ]
        if not self._is_bounded:
            nested += [self._map, self._anything]
        if depth > 2 or self._rng.random() < 0.5:
            schema = self._rng.choice(simple)()
        else:
            schema = self._rng.choice(nested)(depth + 1)
        if isinstance(schema, dict) and self._rng.random() < 0.2:
            annotations = {"description": "what it is", "default": None, "examples": [1], "x-order": 3}
            schema = {**annotations, **schema}
        return schema

    def _text(self) -> Any:
        rng = self._rng
        schema: dict[str, Any] = {"type": "string"}
        match rng.randrange(4):
            case 0:
                schema["pattern"] = rng.choice(_PATTERNS[: -2 if self._is_bounded else None])
            case 1 if not self._is_bounded:
                schema["format"] = rng.choice(_FORMATS)
            case 2 | 1:
                schema["minLength"] = rng.randrange(4)
                schema["maxLength"] = schema["minLength"] + rng.randrange(8)
            case _:
                schema |= {"maxLength": 12} if self._is_bounded else {}
        return schema

    def _integer(self) -> Any:
        rng = self._rng
        low = rng.choice([-(10**12), -1000, -5, 0, 1, 17])
        high = low + rng.choice([0, 3, 99, 10**6])
        match rng.randrange(3 if self._is_bounded else 4):
            case 0:
                return {"type": "integer", "exclusiveMinimum": low - 1, "exclusiveMaximum": high + 1}
            case 1:
                return {
                    "type": "integer",
                    "minimum": low,
                    "maximum": high + 30,
                    "multipleOf": rng.choice([1, 3, 7, 10]),
                }
            case 2:
                return {"type": "integer", "minimum": low, "maximum": high}
        return {"type": rng.choice(["integer", "number"])}

    def _number(self) -> Any:
        if self._is_bounded:
            return {"enum": [round(self._rng.uniform(-100, 100), 3), 1.5e-7, 0, -2.5]}
        low = round(self._rng.uniform(-50, 50), 2)
        return {"type": "number", "minimum": low, "exclusiveMaximum": low + self._rng.choice([0.01, 1, 1000])}

    def _enum(self) -> Any:
        return {
            "enum": self._rng.sample(
                [*_TEXTS, 1, 2.5, True, None, [1, "x"], {"k": "v"}], self._rng.randint(1, 6)
            )
        }

    def _const(self) -> Any:
        return {"const": self._rng.choice([*_TEXTS, 7, False, None, {"a": [1, {"b": "ç"}]}])}

    def _plain(self) -> Any:
        return {"type": self._rng.choice(["boolean", "null", ["boolean", "null"]])}

    def _properties(self, depth: int) -> dict[str, Any]:
        names = self._rng.sample(_NAMES, self._rng.randint(1, 5))
        return {name: self._any(depth) for name in names}

    def _object(self, depth: int) -> Any:
        properties = self._properties(depth)
        required = [name for name in properties if self._rng.random() < 0.6]
        self._rng.shuffle(required)
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        if self._is_bounded or self._rng.random() < 0.5:
            schema["additionalProperties"] = False
        elif self._rng.random() < 0.5:
            schema["additionalProperties"] = self._any(depth)
        return schema

    def _map(self, depth: int) -> Any:
        inner = self._any(depth)
        return self._rng.choice(
            [
                {"type": "object", "additionalProperties": inner, "maxProperties": 3},
                {"type": "object", "additionalProperties": inner, "minProperties": 1},
                {
                    "type": "object",
                    "patternProperties": {"^n_[a-z]{1,3}$": inner},
                    "additionalProperties": False,
                },
                {"type": "object", "propertyNames": {"enum": ["p", "q"]}, "additionalProperties": inner},
            ]
        )

    def _anything(self, _depth: int) -> Any:
        return self._rng.choice([True, {}, {"type": "object"}, {"type": ["array", "string"]}])

    def _array(self, depth: int) -> Any:
        schema: dict[str, Any] = {"type": "array", "items": self._any(depth)}
        schema["minItems"] = self._rng.randrange(3)
        if self._is_bounded or self._rng.random() < 0.5:
            schema["maxItems"] = schema["minItems"] + self._rng.randrange(4)
        return schema

    def _tuple(self, depth: int) -> Any:
        first = [self._any(depth) for _ in range(self._rng.randint(1, 3))]
        schema = {"type": "array", "minItems": self._rng.randint(0, len(first))}
        if self._is_old:
            return {**schema, "items": first, "additionalItems": False}
        return {**schema, "prefixItems": first, "items": False}

    def _optional(self, depth: int) -> Any:
        return {"anyOf": [self._any(depth), {"type": "null"}], "title": "Optional"}

    def _defined(self, depth: int) -> Any:
        name = f"D{len(self._definitions)}/~"
        self._definitions[name] = {}
        self._definitions[name] = self._any(depth)
        return {"$ref": f"#/{self._definitions_key}/{name.replace('~', '~0').replace('/', '~1')}"}

    def _variants(self, depth: int) -> Any:
        variants = []
        for kind in self._rng.sample(["cat", "dog", "größer", "日"], self._rng.randint(2, 3)):
            properties = {"kind": {"const": kind}, **self._properties(depth + 1)}
            required = ["kind", *list(properties)[1:2]]
            variants.append(
                {
                    "type": "object",
                    "properties": properties,
                    "required": required,
                    "additionalProperties": False,
                }
            )
        return {self._rng.choice(["oneOf", "anyOf"]): variants}

    def _merged(self, depth: int) -> Any:
        first, second = (
            {"properties": {name: self._any(depth + 1)}, "required": [name]} for name in ("one", "two")
        )
        merged: dict[str, Any] = {"type": "object", "allOf": [first, second]}
        if self._is_bounded:
            merged |= {"properties": {"one": True, "two": True}, "additionalProperties": False}
        return merged

    def _recursive(self) -> Any:
        inner = self._any(2)
        node: dict[str, Any] = {"type": "object", "properties": {"value": inner}, "required": ["value"]}
        match self._rng.randrange(3):
            case 0:
                node["properties"]["next"] = {"$ref": "#"}
                return {**node, "additionalProperties": False}
            case 1:
                node["properties"]["children"] = {
                    "type": "array",
                    "items": {"$ref": f"#/{self._definitions_key}/Node"},
                }
                node["required"].append("children")
            case _:
                other = {"type": "object", "properties": {"of": {"$ref": f"#/{self._definitions_key}/Node"}}}
                node["properties"]["also"] = {"anyOf": [other, {"type": "null"}]}
        self._definitions["Node"] = node
        return {"$ref": f"#/{self._definitions_key}/Node"}
