"""Text is read as what the schema allows, and patterns of JSON Schema become regular expressions."""

from __future__ import annotations

import re

import pytest

from puna.chat.replies.calls.text_values import string_patterns, value_of_text

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("12", {"type": "string"}, "12"),
        ("12", {"type": ["string", "integer"]}, 12),
        ("12.5", {"type": ["string", "integer"]}, "12.5"),
        ("12.0", {"type": "integer"}, 12.0),
        (" True\n", {"type": "boolean"}, True),
        ("Null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("null", {"type": "integer"}, "null"),
        ("8", {"enum": ["a", 7]}, "8"),
        ("7", {"enum": ["a", 7]}, 7),
        ("[1]", {"type": "array"}, [1]),
        ("[1]", {"type": "object"}, "[1]"),
        ('{"a": 1}', {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}, {"a": 1}),
        ('"a"', {}, "a"),
        ("a", {}, "a"),
    ],
)
def test_values(text, schema, value):
    read = value_of_text(text, schema)
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        (r"^\d{3}$", "123", "12٣"),
        ("b", "abc", "ac"),
        ("^a", "ab", "ba"),
        (r"b\$", "ab$c", "ab"),
        ("^(a|b)$", "b", "ab"),
        ("[$^]", "x^", "x"),
    ],
)
def test_patterns(pattern, right, wrong):
    patterns = string_patterns({"pattern": pattern, "maxLength": 5})
    assert all(re.fullmatch(each, right) for each in patterns)
    assert not all(re.fullmatch(each, wrong) for each in patterns)


@pytest.mark.parametrize("pattern", ["^a|b$", "(?=a)", "a^b", r"(a)\1"])
def test_patterns_that_are_not_enforced(pattern):
    assert string_patterns({"pattern": pattern, "minLength": 2}) == ["(?s:.{2,})"]
