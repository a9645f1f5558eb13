"""Schemas that no finite value fits, since each value needs another of its kind within it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from puna.chat.errors import PromptError
from puna.chat.grammars.schemas.keywords import Node, Schema


def without_endless(root: Schema, definitions: Mapping[str, Schema]) -> Node:
    """The root with its definitions; what cannot end is false in it. Raises PromptError if that is all."""
    finite: set[str] = set()
    while more := {
        name for name, schema in definitions.items() if name not in finite and _is_finite(schema, finite)
    }:
        finite |= more
    if not _is_finite(root, finite):
        raise PromptError("no value fits the schema: what it requires is false, or goes on without end")
    kept = {name: _pruned(definitions[name], finite) for name in definitions if name in finite}
    pruned = _pruned(root, finite)
    node = pruned if isinstance(pruned, dict) else {"allOf": [pruned]}
    return {**node, "$defs": kept} if kept else node


def _is_finite(schema: Schema, finite: Collection[str]) -> bool:
    """finite: names of definitions that are known to be."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and schema["$ref"].removeprefix("#/$defs/") not in finite:
        return False
    if not all(_is_finite(part, finite) for part in schema.get("allOf", [])):
        return False
    if "anyOf" in schema and not any(_is_finite(part, finite) for part in schema["anyOf"]):
        return False
    types = schema.get("type", "")
    return any(
        {"object": _is_finite_object, "array": _is_finite_array}.get(name, _is_finite_value)(schema, finite)
        for name in ([types] if isinstance(types, str) else types)
    )


def _is_finite_value(schema: Node, finite: Collection[str]) -> bool:  # noqa: ARG001
    return True


def _is_finite_object(schema: Node, finite: Collection[str]) -> bool:
    properties = schema.get("properties", {})
    return all(_is_finite(properties.get(name, True), finite) for name in schema.get("required", []))


def _is_finite_array(schema: Node, finite: Collection[str]) -> bool:
    fewest, items = schema.get("minItems", 0), schema.get("items", True)
    first = items if isinstance(items, list) else schema.get("prefixItems", [])
    rest = schema.get("additionalItems", True) if isinstance(items, list) else items
    needed = first[:fewest] + ([rest] if fewest > len(first) else [])
    return all(_is_finite(item, finite) for item in needed)


def _pruned(value: Any, finite: Collection[str]) -> Any:
    """References to what is not finite become false."""
    if isinstance(value, list):
        return [_pruned(item, finite) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value and value["$ref"].removeprefix("#/$defs/") not in finite:
        return False
    pruned = dict(value)
    for key in ("properties", "patternProperties"):
        if key in value:
            pruned[key] = {name: _pruned(part, finite) for name, part in value[key].items()}
    for key in ("allOf", "anyOf", "items", "prefixItems", "additionalItems", "additionalProperties"):
        if key in value:
            pruned[key] = _pruned(value[key], finite)
    return pruned
