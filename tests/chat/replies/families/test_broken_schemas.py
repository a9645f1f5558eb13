"""Tools whose schemas make no sense can be called all the same, unless they are strict."""

from __future__ import annotations

from typing import Any

import pytest

from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.composition import reply_grammar
from puna.chat.grammars.schemas.checking import without_details
from puna.chat.replies.families.harmony import written_names
from puna.chat.replies.families.registry import FAMILIES
from puna.chat.replies.reply_format import ReplyFormat
from puna.chat.tools import Tool, ToolChoice, ToolFunction
from tests.chat.grammars.matching import fits
from tests.chat.test_prompt import TOKENIZER

pytestmark = pytest.mark.unit


def declaring(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema, "pattern": {"type": "string"}}, "required": ["a"]}


BROKEN = [
    {"required": True},
    {"properties": 5},
    {"properties": {"a": 5, "b": None, "c": True}},
    declaring(type={}),
    declaring(type=["foo", {}]),
    declaring(type="array", minItems="x", items=5),
    declaring(type="array", minItems=3, maxItems=1),
    declaring(type="array", minItems=1.5, items=[]),
    declaring(type="string", pattern="("),
    declaring(type="string", pattern=5, minLength=-5),
    declaring(type="string", minLength=10, maxLength=2),
    declaring(type="string", minLength=9999, maxLength=10_000),
    declaring(type="object", required=True, properties=7),
    declaring(type="integer", minimum=5, maximum=2),
    declaring(enum={}, anyOf=5),
    {"$defs": 5, **declaring(**{"$ref": "#/$defs/a"})},
]


@pytest.mark.parametrize("family", [family for family in FAMILIES.values() if family.name != "plain"])
def test_each_family_has_a_grammar(family) -> None:
    for schema in BROKEN:
        form = ReplyFormat(family=family.name, may_call=True)
        tool = Tool(ToolFunction("f", parameters=schema))
        assert reply_grammar(family, form, [tool], ToolChoice("required"), None, TOKENIZER), schema


def test_properties_may_be_called_like_keywords() -> None:
    schema = declaring(type="string", pattern="(", enum=[{"pattern": "x"}])
    plain = {"type": "string", "enum": [{"pattern": "x"}]}
    assert without_details(schema)["properties"] == {"a": plain, "pattern": {"type": "string"}}


@pytest.mark.parametrize(
    ("parameters", "takes_any"),
    [
        ({}, False),
        ({"type": "object", "properties": {}}, False),
        ({"type": "object"}, True),
        ({"properties": {}, "additionalProperties": True}, True),
        ({"properties": {}, "anyOf": [{"properties": {"a": {}}}]}, True),
    ],
)
def test_functions_without_parameters(parameters, takes_any: bool) -> None:
    def can_have(arguments: str) -> bool:
        g = GrammarBuilder(lambda _: None)
        return fits(g.grammar(g.arguments(ToolFunction("f", parameters=parameters))), arguments)

    assert can_have("{}")
    assert can_have('{"a": 1}') == takes_any


def test_names_that_are_one_identifier_are_told_apart() -> None:
    names = [f"a{one}{two}" for one in ".-/ " for two in ".-/ "]
    written = written_names([Tool(ToolFunction(name)) for name in names])
    assert len(set(written.values())) == len(names)
