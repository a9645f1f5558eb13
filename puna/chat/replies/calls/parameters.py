"""What a tool's schema says of each parameter, for formats that write parameters one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from puna.chat.errors import PromptError
from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.tools import Tool

Schema = dict[str, Any]

_ANNOTATIONS = {
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "$comment",
    "readOnly",
    "writeOnly",
}
_DEFINITIONS = ("$defs", "definitions")
_ARGUMENTS = "arguments "  # a name that no definition has
_MAX_ALTERNATIVES = 1000
_MAX_DEPTH = 16  # of references and unions within each other


class Parameter(NamedTuple):
    """schema: stands for itself: it brings the definitions that it refers to."""

    name: str
    schema: Schema
    required: bool


def parameters_of(tool: Tool) -> list[Parameter]:
    """Those that the schema names, in its order. What it says of them beside `properties` and `required` is
    not looked at, nor are further parameters that it may allow. Raises PromptError.
    """
    try:
        return parameters_within(_rebased(tool.function.parameters))
    except RecursionError as error:
        raise PromptError(f"the schema of {tool.function.name} is nested too deep") from error


def parameters_within(whole: Schema) -> list[Parameter]:
    """The same of any object. whole: its schema, which stands for itself."""
    root = _resolved(whole, whole) or whole
    properties = _mapping(root.get("properties"))
    required = root.get("required")
    required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    schemas = {**properties, **{name: properties.get(name, {}) for name in required}}
    return [
        Parameter(name, with_definitions(schema, whole), name in required)
        for name, schema in schemas.items()
        if schema is not False
    ]


def schemas_of(tools: Sequence[Tool], name: str) -> dict[str, Schema]:
    """Of the parameters of the tool that is called so, by their names; none if there is no such tool."""
    tool = next((tool for tool in tools if tool.function.name == name), None)
    return {} if tool is None else {parameter.name: parameter.schema for parameter in parameters_of(tool)}


def with_definitions(schema: Any, root: Mapping[str, Any]) -> Schema:
    """A part of a schema that stands for itself."""
    part = _mapping(schema)
    if '"$ref"' not in json.dumps(part):
        return part
    return {**part, **{key: root[key] for key in _DEFINITIONS if key in root}}


def alternatives(schema: Schema) -> list[Schema]:
    """Schemas of which a value has to fit one: references, unions, enumerations and lists of types are taken
    apart. Where that cannot be done, a schema may still have them.

    schema: stands for itself, see with_definitions(); so do those that come back.
    """
    found = list(islice(_alternatives(schema, schema, 0), _MAX_ALTERNATIVES + 1))
    return found if len(found) <= _MAX_ALTERNATIVES else [schema]


def says_nothing_but(schema: Schema, *keywords: str) -> bool:
    """Whether these are all that it demands."""
    return set(schema) <= {*keywords, *_ANNOTATIONS, *_DEFINITIONS}


def type_name(value: Any) -> str:
    """As schemas call it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def joined(g: GrammarBuilder, members: Sequence[tuple[str, bool]], separator: str) -> str:
    """A term: members in this order with a separator between them; those that are not required may be absent.

    members: (a term, whether it is required). separator: a term.
    """
    first, rest = "", ""
    for term, required in reversed(members):
        behind = f"{term} {rest}"
        if required or not first:
            first = g.rule("first", behind if required else f"({behind})?")
        else:
            first = g.rule("first", f"{behind} | {first}")
        rest = g.rule("rest", f"{separator} {behind}" if required else f"({separator} {term})? {rest}")
    return first


def _alternatives(schema: Schema, root: Schema, depth: int) -> Iterator[Schema]:
    """At least one, so that whoever has enough of them is done soon."""
    parts = _taken_apart(schema, root, depth)
    yield next(parts, schema)
    yield from parts


def _taken_apart(schema: Schema, root: Schema, depth: int) -> Iterator[Schema]:
    union = next((key for key in ("anyOf", "oneOf") if says_nothing_but(schema, key, "type")), None)
    if depth > _MAX_DEPTH:
        yield schema
    elif (target := _resolved(schema, root)) is not None:
        yield from _alternatives(with_definitions(target, root), root, depth + 1)
    elif "const" in schema:
        yield {"const": schema["const"]}
    elif isinstance(schema.get("enum"), list):
        yield from ({"const": value} for value in schema["enum"] if _has_type(value, schema))
    elif union is not None and isinstance(schema.get(union), list):
        for branch in schema[union]:
            if branch is not False:
                yield from _alternatives(with_definitions(branch, root), root, depth + 1)
    elif isinstance(types := schema.get("type"), list):
        yield from ({**schema, "type": kind} for kind in types)
    else:
        yield schema


def _resolved(schema: Schema, root: Mapping[str, Any]) -> Schema | None:
    """What it refers to, if it does nothing else."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not says_nothing_but(schema, "$ref"):
        return None
    _, *path = reference.split("/")
    target: Any = root
    for name in path:
        target = _mapping(target).get(name.replace("~1", "/").replace("~0", "~"))
    return target if isinstance(target, dict) else None


def _rebased(whole: Schema) -> Schema:
    """References to the arguments themselves, or to a part of them, lead to a definition of its own."""

    def moved(node: Any) -> Any:
        if isinstance(node, list):
            return [moved(item) for item in node]
        if not isinstance(node, dict):
            return node
        reference = node.get("$ref")
        if isinstance(reference, str) and re.match(r"#(?!/\$defs/|/definitions/)", reference):
            return {**node, "$ref": f"#/$defs/{_ARGUMENTS}{reference[1:]}"}
        return {key: moved(value) for key, value in node.items()}

    rebased: Schema = moved(whole)
    if rebased == whole:
        return whole
    itself = {key: value for key, value in rebased.items() if key not in _DEFINITIONS}
    return {**rebased, "$defs": {**_mapping(rebased.get("$defs")), _ARGUMENTS: itself}}


def _has_type(value: Any, schema: Schema) -> bool:
    types = schema.get("type")
    names = [types] if isinstance(types, str) else types or []
    kind = type_name(value)
    return not names or kind in names or (kind == "integer" and "number" in names)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
