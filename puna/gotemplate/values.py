"""Go's values in Python's.

nil, bool, int, float64, string, slices and maps are None, bool, int, float, str, list and dict. Keys of maps
are strings. A pointer is what it points to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from puna.gotemplate.errors import GoTemplateError


class Stringer:
    """A value that prints in its own way."""

    def go_string(self) -> str:
        raise NotImplementedError


class JsonObject(dict[str, Any]):
    """As JSON, its keys keep their order; those of other maps are sorted."""


class Struct:
    """fields: by their names in Go, in their order. json: what it is as JSON; by default the fields."""

    __slots__ = ("fields", "json", "type_name")

    def __init__(self, type_name: str, fields: Mapping[str, Any], json: JsonObject | None = None) -> None:
        self.type_name = type_name
        self.fields = fields
        self.json = JsonObject(fields) if json is None else json


def is_true(value: Any) -> bool:
    """Structs are; else what is not zero, and not empty."""
    return isinstance(value, Struct) or bool(value)


def field_of(value: Any, name: str) -> Any:
    """What a map lacks is nil. Raises GoTemplateError."""
    if isinstance(value, dict):
        return value.get(name)
    if isinstance(value, Struct):
        if name not in value.fields:
            raise GoTemplateError(f"can't evaluate field {name} in type {value.type_name}")
        return value.fields[name]
    if value is None:
        raise GoTemplateError(f"nil pointer evaluating interface {{}}.{name}")
    raise GoTemplateError(f"can't evaluate field {name} in type {type_name(value)}")


def type_name(value: Any) -> str:
    if isinstance(value, Struct):
        return value.type_name
    names = {bool: "bool", int: "int", float: "float64", str: "string", type(None): "<nil>"}
    if (name := names.get(type(value))) is not None:
        return name
    return "map[string]interface {}" if isinstance(value, dict) else "[]interface {}"
