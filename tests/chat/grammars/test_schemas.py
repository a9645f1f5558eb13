"""What becomes of the keywords of JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest

from puna.chat.errors import PromptError
from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.schemas.keywords import Rigour
from puna.chat.tools import ToolFunction
from tests.chat.grammars.matching import find_control, fits

pytestmark = pytest.mark.unit


def accepts(schema: dict[str, Any], text: str, rigour: Rigour = Rigour.NORMAL) -> bool:
    builder = GrammarBuilder(find_control)
    return fits(builder.grammar(builder.schema(schema, rigour)), text)


CAT = {
    "type": "object",
    "properties": {"kind": {"const": "cat"}, "age": {"type": "integer"}},
    "required": ["kind"],
}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"]}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({}, "[1]", "[1"),
        ({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, '{"a":1}', "5"),  # an object is meant
        ({"type": "object", "properties": {"a": {}}}, '{"a":1}', '{"b":1}'),  # and no other properties
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": True}, '{"b":1}', "{"),
        ({"properties": {"a": {"type": "null"}}, "required": ["b", "a"]}, '{"a":null,"b":[]}', '{"a":null}'),
        ({"type": "string", "nullable": True}, "null", "1"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, "title": "T"}, "null", '""'),
        (
            {"oneOf": [{"$ref": "#/$defs/C"}, DOG], "$defs": {"C": CAT}},
            '{"kind":"cat","age":1}',
            '{"kind":"dog","age":1}',
        ),
        ({"oneOf": [{"type": "integer", "maximum": 1}, {"type": "number", "minimum": 2}]}, "3", "1.5"),
        (
            {"type": "object", "propertyNames": {"enum": ["a"]}, "additionalProperties": {"type": "null"}},
            '{"a":null}',
            '{"b":null}',
        ),
        ({"type": "object", "propertyNames": {"pattern": "^x+$"}}, '{"xx":1}', '{"y":1}'),
        ({"type": "object", "propertyNames": {"type": "string"}}, '{"y":1}', "{1:1}"),
        ({"type": "string", "format": "date", "x-more": 1}, '"2024-01-31"', '"yesterday"'),
        ({"type": "string", "format": "no such"}, '"yesterday"', "1"),
        ({"type": "string", "pattern": r"^[[\]&&]+\/\d$"}, '"[]&/1"', '"[]&/x"'),
        ({"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, "9007199254740993", "-1"),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, "2", "1"),
        ({"type": "integer"}, "-" + 18 * "9", 19 * "1"),
        ({"type": "integer", "minimum": 5}, "42", 19 * "1"),
        ({"type": "array", "items": [{"type": "null"}], "additionalItems": False}, "[null]", "[1]"),
        ({"type": "array", "maxItems": 1, "uniqueItems": True}, "[1]", "[1,1]"),
        ({"type": "object", "properties": {"next": {"$ref": "#"}}}, '{"next":{"next":{}}}', '{"next":1}'),
        ({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "null"}}}, "null", "1"),
        ({"$ref": "#here", "$defs": {"a": {"$anchor": "here", "type": "null"}}}, "null", "1"),
        (
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/e"}},
                "$defs": {"e": {"$ref": "#/$defs/e"}},
            },
            "{}",
            '{"a":1}',
        ),
        (
            {
                "allOf": [
                    {"properties": {"a": {"type": "null"}}},
                    {"properties": {"b": {}}, "required": ["b"]},
                ],
                "type": "object",
            },
            '{"a":null,"b":1}',
            '{"a":null}',
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "array",
                "prefixItems": [{"type": "null"}],
            },
            "[1]",
            "{}",
        ),
    ],
)
def test_what_schemas_mean(schema: dict[str, Any], good: str, bad: str) -> None:
    assert accepts(schema, good)
    assert not accepts(schema, bad)


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"properties": {"a": {"not": {"type": "null"}}}}, "'not' at #/properties/a"),
        ({"type": "array", "uniqueItems": True}, "'uniqueItems' at #"),
        ({"items": {"contains": {}}}, "'contains' at #/items"),
        ({"if": {}, "then": {}}, "'if' at #"),
        ({"oneOf": [{"type": "string"}, {"pattern": "a"}]}, "'oneOf' at #"),
        ({"type": "object", "minProperties": 2}, "'minProperties' at #"),
        (
            {
                "properties": {"a": {}, "b": {}},
                "maxProperties": 1,
                "minProperties": 1,
                "additionalProperties": True,
            },
            "'minProperties'",
        ),
        ({"type": "object", "unevaluatedProperties": False, "allOf": [{}]}, "'unevaluatedProperties' at #"),
        ({"enum": [2**53 + 1]}, "'enum' at #"),
        ({"type": "string", "pattern": r"(a)\1"}, "'pattern' '(a)"),
        ({"type": "text"}, "type 'text' at #"),
        ({"type": "string", "minLength": "3"}, "'minLength' at #"),
        ({"$ref": "#/$defs/none"}, "'$ref' at # is to '#/$defs/none'"),
        ({"items": 5}, "#/items is neither"),
        ({"type": "string", "const": 1}, "Unsatisfiable"),
    ],
)
def test_what_cannot_be_enforced_is_named(schema: dict[str, Any], named: str) -> None:
    with pytest.raises(PromptError) as caught:
        accepts(schema, "")
    assert named in str(caught.value)


@pytest.mark.parametrize("schema", [{"type": "string", "format": "color"}, {"type": "null", "colour": "red"}])
def test_strict_schemas_must_not_have_what_nobody_knows(schema: dict[str, Any]) -> None:
    accepts(schema, "null")
    with pytest.raises(PromptError, match="strict"):
        accepts(schema, "null", Rigour.STRICT)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "uniqueItems": True, "items": {"type": "integer"}},
        {"type": "array", "items": {"type": "integer", "not": {"const": 1}}},
        {"type": "array", "items": {"type": "integer"}, "contains": {"const": 1}},
    ],
)
def test_tools_are_held_to_what_can_be_enforced(schema: dict[str, Any]) -> None:
    def call(*, strict: bool, text: str) -> bool:
        function = ToolFunction(
            "f", parameters={"properties": {"a": schema}, "required": ["a"]}, strict=strict
        )
        builder = GrammarBuilder(find_control)
        return fits(builder.grammar(builder.arguments(function)), text)

    assert call(strict=False, text='{"a":[1,1]}')
    assert not call(strict=False, text='{"a":["x"]}')
    with pytest.raises(PromptError):
        call(strict=True, text="")


@pytest.mark.parametrize(
    "parameters", [{"type": "str"}, {"$ref": "https://x.y"}, {"properties": 3}, {"type": "array"}]
)
def test_a_tool_with_a_broken_schema_takes_any_object(parameters: dict[str, Any]) -> None:
    builder = GrammarBuilder(find_control)
    grammar = builder.grammar(builder.arguments(ToolFunction("f", parameters=parameters)))
    assert fits(grammar, '{"a":{"b":[1]}}')
    assert not fits(grammar, "[]")
