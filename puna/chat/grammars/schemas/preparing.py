"""Schemas as clients send them, in the words of llguidance.

https://json-schema.org/draft/2020-12, older drafts, and what OpenAPI adds;
https://github.com/guidance-ai/llguidance/blob/main/docs/json_schema.md
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from puna.chat.errors import PromptError
from puna.chat.grammars.schemas import objects, values
from puna.chat.grammars.schemas.disjoint import Comparison
from puna.chat.grammars.schemas.finite import without_endless
from puna.chat.grammars.schemas.keywords import (
    ANNOTATIONS,
    COUNTS,
    MERGED,
    NUMBERS,
    OF_ARRAYS,
    OF_OBJECTS,
    UNENFORCEABLE,
    Node,
    Rigour,
    Schema,
)
from puna.chat.grammars.schemas.references import resolve

_MAX_DEPTH = 40
"""Of schemas within schemas."""
_MAX_PATH_CHARS = 150
"""Of what errors say."""
_MAX_SCHEMAS = 20_000
_MAX_ALTERNATIVES = 1000
"""llguidance follows all of them at once, 2000 at most; likewise with properties that may be left out."""
_MAX_PROPERTIES = 1000
_MAX_OPTIONAL = 400
_MAX_DEFINITIONS = 1000
_MAX_REMAINDERS = 10_000
"""Numbers that must be multiples become automata with a state for each remainder; where they may have to be
multiples of several numbers, of their least common multiple.
"""
_OLD_DRAFTS = re.compile(r"draft-0\d|draft/2019-09")
_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))


def prepared(schema: Mapping[str, Any], rigour: Rigour) -> Node:
    """A schema that says the same, or less if `rigour` is lenient. Raises PromptError, which names the
    keyword that cannot be used and where it is.
    """
    preparation = _Preparation(dict(schema), rigour)
    root = preparation.schema(preparation.root, "#", 0)
    preparation.finish()
    return without_endless(root, preparation.definitions)


class _Preparation:
    """definitions: prepared targets of references, by their names."""

    def __init__(self, root: Node, rigour: Rigour) -> None:
        self.root = root
        self.definitions: dict[str, Schema] = {}
        self._names: dict[int, str] = {}  # of definitions, by the identity of what was there before
        self._waiting: list[tuple[str, Any, str]] = []  # name, schema and path of definitions
        self._exclusive: list[tuple[list[Schema], str]] = []  # alternatives and path of each oneOf
        self._rigour = rigour
        self._num_schemas = 0
        self._num_remainders = 1
        self._closes = not objects.merges(root)
        self._knows_prefixes = _OLD_DRAFTS.search(str(root.get("$schema"))) is None

    def finish(self) -> None:
        """Prepares what was referred to."""
        while self._waiting:
            name, schema, path = self._waiting.pop()
            self.definitions[name] = self.schema(schema, path, 0)
        comparison = Comparison(self.definitions)
        for alternatives, path in self._exclusive:
            if not comparison.are_all_disjoint(alternatives):
                self._unenforceable(
                    True, "oneOf", path, "more than one of its alternatives may fit; use anyOf"
                )

    def schema(self, schema: Any, path: str, depth: int) -> Schema:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise PromptError(f"the schema at {path} is neither an object nor a boolean")
        self._num_schemas += 1
        if self._num_schemas > _MAX_SCHEMAS:
            raise PromptError(f"the schema has more than {_MAX_SCHEMAS} schemas in it")
        if len(path) > _MAX_PATH_CHARS:
            path = "#..." + path[-_MAX_PATH_CHARS:]
        if depth > _MAX_DEPTH:
            raise PromptError(f"the schema is nested more than {_MAX_DEPTH} times at {path}")
        node: Node = {}
        for key, value in schema.items():
            if key not in ANNOTATIONS and not key.startswith("x-"):
                node[key] = value
        return self._translated(node, path, depth)

    def _translated(self, node: Node, path: str, depth: int) -> Schema:
        nullable = node.pop("nullable", False) is True
        self._leave_out(node, path)
        _infer_type(node)
        _check_type(node, path)
        self._values(node, path)
        self._arrays(node, path, depth)
        self._objects(node, path, depth)
        self._merged(node, path, depth)
        if nullable and node:
            return {"anyOf": [node, {"type": "null"}]}
        return node

    def _leave_out(self, node: Node, path: str) -> None:
        """What cannot be enforced, or nobody knows."""
        for key in UNENFORCEABLE:
            if key in node:
                self._unenforceable(node.pop(key) is not None, key, path)
        for key in [key for key in node if key not in _KNOWN]:
            if self._rigour is Rigour.STRICT:
                raise PromptError(
                    f"the schema's keyword {key!r} at {path} is unknown, which a strict schema must not have"
                )
            del node[key]

    def _unenforceable(self, applies: bool, keyword: str, path: str, why: str = "") -> None:
        if applies and self._rigour is not Rigour.LENIENT:
            raise PromptError(
                f"the schema's keyword {keyword!r} at {path} cannot be enforced{why and f': {why}'}"
            )

    def _values(self, node: Node, path: str) -> None:
        for key in COUNTS:
            if key in node:
                node[key] = values.count(node[key], f"{key!r} at {path}")
        for key in NUMBERS:
            if key in node:
                is_integer = node.get("type") == "integer"
                node[key] = values.bound(node[key], f"{key!r} at {path}", "max" in key.lower(), is_integer)
        if node.get("type") == "integer":
            values.bound_digits(node)
        for key in ("const", "enum"):
            if key in node:
                values.check_size(node[key], f"{key!r} at {path}")
                self._unenforceable(not values.is_exact(node[key]), key, path, "numbers of more than 53 bits")
        if "format" in node and not values.knows_format(node):
            if self._rigour is Rigour.STRICT:
                raise PromptError(
                    f"the schema's 'format' at {path} is unknown, which a strict schema must not have"
                )
            del node["format"]
        if "pattern" in node:
            node["pattern"] = values.rust_pattern(node["pattern"], f"'pattern' at {path}")
        if "multipleOf" in node:
            divisor = values.divisor(node["multipleOf"]) or _MAX_REMAINDERS + 1
            remainders = self._num_remainders + divisor
            if not self._closes:
                remainders = math.lcm(self._num_remainders, divisor)
            if remainders > _MAX_REMAINDERS:
                self._unenforceable(True, "multipleOf", path, "it, or all of them together, are too large")
                del node["multipleOf"]
            else:
                self._num_remainders = remainders

    def _arrays(self, node: Node, path: str, depth: int) -> None:
        if not self._knows_prefixes:
            node.pop("prefixItems", None)
        if node.pop("uniqueItems", False) is True:
            self._unenforceable(node.get("maxItems", 2) > 1, "uniqueItems", path)
        if "unevaluatedItems" in node:
            self._unenforceable(node.pop("unevaluatedItems") is not True, "unevaluatedItems", path)
        for key in ("items", "prefixItems"):
            if isinstance(node.get(key), list):
                node[key] = self._list(node[key], f"{path}/{key}", depth)
            elif key in node:
                node[key] = self.schema(node[key], f"{path}/{key}", depth + 1)
        if "additionalItems" in node:
            node["additionalItems"] = self.schema(
                node["additionalItems"], f"{path}/additionalItems", depth + 1
            )

    def _objects(self, node: Node, path: str, depth: int) -> None:
        if not any(key in node for key in (*OF_OBJECTS, "unevaluatedProperties")):
            return
        for keyword, why in objects.normalise(node, closes=self._closes):
            self._unenforceable(True, keyword, path, why)
        for key in ("properties", "patternProperties"):
            if key in node:
                if not isinstance(node[key], dict):
                    raise PromptError(f"{key!r} at {path} is not an object")
                _check_number(len(node[key]), _MAX_PROPERTIES, key, path)
                num_optional = len(node[key].keys() - set(node.get("required", [])))
                _check_number(num_optional, _MAX_OPTIONAL, f"{key} that may be left out", path)
                node[key] = {
                    name: self.schema(value, f"{path}/{key}/{name[:64]}", depth + 1)
                    for name, value in node[key].items()
                }
        if "patternProperties" in node:
            node["patternProperties"] = {
                values.rust_pattern(pattern, f"'patternProperties' at {path}"): value
                for pattern, value in node["patternProperties"].items()
            }
        if "additionalProperties" in node:
            inner = f"{path}/additionalProperties"
            node["additionalProperties"] = self.schema(node["additionalProperties"], inner, depth + 1)

    def _merged(self, node: Node, path: str, depth: int) -> None:
        for key in MERGED[:3]:
            if key in node:
                node[key] = self._list(node[key], f"{path}/{key}", depth)
        if "$ref" in node:
            node["$ref"] = f"#/$defs/{self._definition(node['$ref'], path)}"
        if "oneOf" in node:
            alternatives = node.pop("oneOf")
            self._exclusive.append((alternatives, path))
            if "anyOf" in node:
                node.setdefault("allOf", []).append({"anyOf": alternatives})
            else:
                node["anyOf"] = alternatives

    def _list(self, schemas: Any, path: str, depth: int) -> list[Schema]:
        if not isinstance(schemas, list):
            raise PromptError(f"the schema at {path} is not a list of schemas")
        _check_number(len(schemas), _MAX_ALTERNATIVES, "schemas", path)
        return [self.schema(schema, f"{path}/{number}", depth + 1) for number, schema in enumerate(schemas)]

    def _definition(self, reference: Any, path: str) -> str:
        """The name of a reference's target."""
        target = resolve(reference, self.root, path)
        if id(target) not in self._names:
            _check_number(len(self._names), _MAX_DEFINITIONS, "definitions", "#")
            self._names[id(target)] = name = str(len(self._names))
            self._waiting.append((name, target, str(reference)[:200]))
        return self._names[id(target)]


_KNOWN = frozenset(
    ("type", "const", "enum", "format", "pattern", "multipleOf", "unevaluatedItems", "unevaluatedProperties")
).union(MERGED, OF_OBJECTS, OF_ARRAYS, COUNTS, NUMBERS)


def _check_number(number: int, most: int, what: str, path: str) -> None:
    if number > most:
        raise PromptError(f"the schema has more than {most} {what} at {path}")


def _infer_type(node: Node) -> None:
    """Who speaks of properties means an object, though other values would fit, too; likewise with arrays."""
    if "type" in node or any(key in node for key in (*MERGED, "const", "enum")):
        return
    if any(key in node for key in OF_OBJECTS):
        node["type"] = "object"
    elif any(key in node for key in OF_ARRAYS):
        node["type"] = "array"


def _check_type(node: Node, path: str) -> None:
    types = node.get("type", [])
    for name in types if isinstance(types, list) else [types]:
        if not isinstance(name, str) or name not in _TYPES:
            raise PromptError(f"the schema's type {str(name)[:40]!r} at {path} is unknown")
