"""What the content of a reply must be."""

from __future__ import annotations

from typing import Any

import msgspec


class JsonAnswer(msgspec.Struct, frozen=True, tag="json"):
    """Any JSON object."""


class SchemaAnswer(msgspec.Struct, frozen=True, tag="schema"):
    """JSON that fits a JSON Schema. strict: keywords that only annotate must be honoured, too."""

    schema: dict[str, Any]
    strict: bool = False


class RegexAnswer(msgspec.Struct, frozen=True, tag="regex"):
    """Text that matches, in the syntax of Rust's regex crate."""

    pattern: str


class LarkAnswer(msgspec.Struct, frozen=True, tag="lark"):
    """What a grammar in llguidance's dialect of Lark accepts."""

    grammar: str


AnswerFormat = JsonAnswer | SchemaAnswer | RegexAnswer | LarkAnswer
