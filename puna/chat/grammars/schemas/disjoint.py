"""Whether no value fits two schemas, as far as that can be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from puna.chat.grammars.schemas.keywords import Node, Schema

_MAX_DEPTH = 4
_MAX_COMPARISONS = 20_000
_EVERYTHING = frozenset(("null", "boolean", "number", "string", "array", "object"))


class Comparison:
    """Of prepared schemas with these definitions; it ends after so many comparisons."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions
        self._num_left = _MAX_COMPARISONS

    def are_all_disjoint(self, schemas: Sequence[Schema]) -> bool:
        """Each from each. False if it is not known."""
        return all(
            self._are_disjoint(one, other, 0)
            for number, one in enumerate(schemas)
            for other in schemas[number + 1 :]
        )

    def _are_disjoint(self, one: Schema, other: Schema, depth: int) -> bool:
        self._num_left -= 1
        one, other = self._resolved(one), self._resolved(other)
        if not isinstance(one, dict) or not isinstance(other, dict):
            return one is False or other is False
        if depth > _MAX_DEPTH or self._num_left < 0:
            return False
        for first, second in ((one, other), (other, one)):
            if "anyOf" in first:
                return all(self._are_disjoint(option, second, depth + 1) for option in first["anyOf"])
        if (values := _values(one)) is not None and (others := _values(other)) is not None:
            return not any(value in others for value in values)
        shared = _types(one) & _types(other)
        if shared == {"object"}:
            return self._objects_differ(one, other, depth)
        return not shared or (shared == {"number"} and (_is_below(one, other) or _is_below(other, one)))

    def _objects_differ(self, one: Node, other: Node, depth: int) -> bool:
        """A property that one of them needs has other values in the other, or does not exist there."""
        return any(
            self._are_disjoint(_property(first, name), _property(second, name), depth + 1)
            for first, second in ((one, other), (other, one))
            for name in first.get("required", [])
        )

    def _resolved(self, schema: Schema) -> Schema:
        """Of references that go round in a circle, the last."""
        for _ in self._definitions:
            if not isinstance(schema, dict) or set(schema) != {"$ref"}:
                break
            schema = self._definitions[schema["$ref"].removeprefix("#/$defs/")]
        return schema


def _values(node: Node) -> list[Any] | None:
    """True is not 1 here, as in JSON."""
    found = [node["const"]] if "const" in node else node.get("enum")
    return None if found is None else [(isinstance(value, bool), value) for value in found]


def _types(node: Node) -> frozenset[str]:
    if (values := _values(node)) is not None:
        return frozenset(_type_of(value) for _, value in values)
    names = node.get("type", _EVERYTHING)
    names = {names} if isinstance(names, str) else set(names)
    return frozenset("number" if name == "integer" else name for name in names)


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _property(node: Node, name: str) -> Schema:
    properties: Mapping[str, Schema] = node.get("properties", {})
    if name in properties:
        return properties[name]
    return True if "patternProperties" in node else node.get("additionalProperties", True)


def _is_below(one: Node, other: Node) -> bool:
    highest, lowest = one.get("maximum"), other.get("minimum")
    return highest is not None and lowest is not None and highest < lowest
