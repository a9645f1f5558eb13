"""What is known of the keywords of JSON Schema."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

Schema = dict[str, Any] | bool
Node = dict[str, Any]


class Rigour(Enum):
    """What happens with what cannot be enforced."""

    LENIENT = auto()
    """It is left out: more is allowed than the schema says."""
    NORMAL = auto()
    """It is refused; what only annotates, and keywords that nobody knows, are left out."""
    STRICT = auto()
    """Keywords and formats that nobody knows are refused, too."""


MERGED = ("allOf", "anyOf", "oneOf", "$ref")
"""Keywords whose schemas hold beside the others."""
OF_OBJECTS = (
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
)
OF_ARRAYS = ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems")
COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")

UNENFORCEABLE = (
    "not",
    "if",
    "contains",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "$dynamicRef",
    "$recursiveRef",
)

_ANNOTATIONS = """
$schema $id id $anchor $dynamicAnchor $recursiveAnchor $vocabulary $comment $defs definitions title
description default examples example readOnly writeOnly deprecated discriminator contentMediaType
contentEncoding contentSchema xml externalDocs then else minContains maxContains x-guidance
"""
ANNOTATIONS = frozenset(_ANNOTATIONS.split())
"""Those of OpenAPI are among them. They ask for nothing or, like `then`, are part of another."""

_FORMATS = "date-time time date duration email hostname ipv4 ipv6 uuid uri"
FORMATS = frozenset(_FORMATS.split())
"""Formats of texts that llguidance knows."""
