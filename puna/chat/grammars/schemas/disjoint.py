"""Whether no value fits two schemas, as far as that can be seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from puna.chat.grammars.schemas.keywords import Node, Schema

_MAX_DEPTH = 4
_EVERYTHING = frozenset(("null", "boolean", "number", "string", "array", "object"))


def are_disjoint(one: Schema, other: Schema, definitions: Mapping[str, Schema], depth: int = 0) -> bool:
    """Prepared schemas. False if it is not known."""
    if depth > _MAX_DEPTH or one is True or other is True:
        return one is False or other is False
    if one is False or other is False:
        return True
    one, other = _resolved(one, definitions), _resolved(other, definitions)
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one is False or other is False
    for first, second in ((one, other), (other, one)):
        if "anyOf" in first:
            return all(are_disjoint(option, second, definitions, depth + 1) for option in first["anyOf"])
    if (values := _values(one)) is not None and (others := _values(other)) is not None:
        return not any(value in others for value in values)
    if not _types(one) & _types(other):
        return True
    if _types(one) & _types(other) == {"object"}:
        return _objects_differ(one, other, definitions, depth)
    return _types(one) & _types(other) == {"number"} and (_is_below(one, other) or _is_below(other, one))


def _resolved(node: Node, definitions: Mapping[str, Schema]) -> Schema:
    """Of references that go round in a circle, the last."""
    for _ in definitions:
        if set(node) != {"$ref"}:
            break
        target = definitions[node["$ref"].removeprefix("#/$defs/")]
        if not isinstance(target, dict):
            return target
        node = target
    return node


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


def _objects_differ(one: Node, other: Node, definitions: Mapping[str, Schema], depth: int) -> bool:
    """A property that one of them needs has other values in the other, or does not exist there."""
    for first, second in ((one, other), (other, one)):
        for name in first.get("required", []):
            mine = _property(first, name)
            if are_disjoint(mine, _property(second, name), definitions, depth + 1):
                return True
    return False


def _property(node: Node, name: str) -> Schema:
    properties: Mapping[str, Schema] = node.get("properties", {})
    if name in properties:
        return properties[name]
    return True if "patternProperties" in node else node.get("additionalProperties", True)


def _is_below(one: Node, other: Node) -> bool:
    highest, lowest = one.get("maximum"), other.get("minimum")
    return highest is not None and lowest is not None and highest < lowest
