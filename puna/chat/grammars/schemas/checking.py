"""Whether llguidance can hold replies to what was prepared for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from puna.chat.errors import PromptError
from puna.chat.grammars.schemas.keywords import COUNTS, NUMBERS, Node, Rigour
from puna.chat.grammars.schemas.preparing import prepared
from puna.chat.grammars.validation import grammar_error

_DETAILS = frozenset(("pattern", "patternProperties", "format", "multipleOf", *COUNTS, *NUMBERS))
_BY_NAME = ("properties", "$defs", "definitions")
_VALUES = ("const", "enum", "required")


def usable_schema(schema: Mapping[str, Any], rigour: Rigour) -> Node:
    """A schema for llguidance. Raises PromptError, unless `rigour` is lenient: then it says as much as can be
    held to.
    """
    if rigour is not Rigour.LENIENT:
        node = prepared(schema, rigour)
        if error := _error(node):
            raise PromptError(_named(node, error))
        return node
    for candidate in (schema, without_details(schema)):
        with suppress(PromptError):
            node = prepared(candidate, rigour)
            if not _error(node):
                return node
    return {"type": "object"}


def without_details(schema: Any) -> Any:
    """Types, properties, constants and alternatives of a schema, or of a list of schemas."""
    if isinstance(schema, list):
        return [without_details(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain: Node = {}
    for key, value in schema.items():
        if key in _BY_NAME and isinstance(value, dict):
            plain[key] = {name: without_details(part) for name, part in value.items()}
        elif key not in _DETAILS:
            plain[key] = value if key in _VALUES else without_details(value)
    return plain


def _error(node: Node) -> str:
    return grammar_error(json.dumps({"grammars": [{"json_schema": node}]}))


def _named(node: Node, error: str) -> str:
    """Says which pattern it is about, if it is about one."""
    for pattern in _patterns(node):
        if reason := _error({"type": "string", "pattern": pattern}):
            return f"the schema's 'pattern' {pattern[:200]!r} cannot be enforced: {reason}"
    return f"the schema cannot be used: {error}"


def _patterns(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _patterns(item)
    elif isinstance(value, dict):
        if isinstance(pattern := value.get("pattern"), str):
            yield pattern
        if isinstance(patterns := value.get("patternProperties"), dict):
            yield from patterns
        for item in value.values():
            yield from _patterns(item)
