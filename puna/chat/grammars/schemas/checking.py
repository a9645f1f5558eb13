"""Whether llguidance can hold replies to what was prepared for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from puna.chat.errors import PromptError
from puna.chat.grammars.schemas.keywords import Node, Rigour
from puna.chat.grammars.schemas.preparing import prepared
from puna.chat.grammars.validation import grammar_error

_DETAILS = ("pattern", "patternProperties", "format", "multipleOf", "minProperties", "maxProperties")


def usable_schema(schema: Mapping[str, Any], rigour: Rigour) -> Node:
    """A schema for llguidance. Raises PromptError, unless `rigour` is lenient: then it says as much as can be
    held to.
    """
    if rigour is not Rigour.LENIENT:
        node = prepared(schema, rigour)
        if error := _error(node):
            raise PromptError(_named(node, error))
        return node
    try:
        node = prepared(schema, rigour)
    except PromptError:
        return {"type": "object"}
    if not _error(node):
        return node
    plain = _without_details(node)
    return {"type": "object"} if _error(plain) else plain


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


def _without_details(value: Any) -> Any:
    """Types, properties and alternatives."""
    if isinstance(value, list):
        return [_without_details(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_details(item) for key, item in value.items() if key not in _DETAILS}
