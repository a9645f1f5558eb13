"""What a reply's content must be: `response_format` of chat completions, `text.format` of responses."""

from __future__ import annotations

from typing import Any

import msgspec

from puna.api.checks import grammar_answer
from puna.api.errors import ApiError
from puna.chat.grammars.answer import AnswerFormat, JsonAnswer, SchemaAnswer

_TYPES = "text, json_object, json_schema or grammar"


class JsonSchema(msgspec.Struct, kw_only=True):
    """A schema; its name is nothing to the model."""

    name: str = ""
    schema: Any = None
    strict: bool = False


class ResponseFormat(JsonSchema, kw_only=True):
    """Responses have the schema's fields beside the type, chat completions within `json_schema`. Grammars are
    an addition of our own.
    """

    type: str = "text"
    json_schema: JsonSchema = msgspec.field(default_factory=JsonSchema)
    syntax: str = ""
    definition: str = ""


def answer_of(wanted: ResponseFormat) -> AnswerFormat | None:
    """None: any text. ApiError (400)."""
    match wanted.type:
        case "text":
            return None
        case "json_object":
            return JsonAnswer()
        case "json_schema":
            return _schema_answer(wanted if wanted.schema is not None else wanted.json_schema)
        case "grammar":
            return grammar_answer({"syntax": wanted.syntax, "definition": wanted.definition})
    raise ApiError(400, f"invalid type of response format: {wanted.type[:40]!r} (must be {_TYPES})")


def _schema_answer(wanted: JsonSchema) -> AnswerFormat:
    if not isinstance(wanted.schema, dict):
        raise ApiError(400, "a response format of type json_schema needs a schema, which is an object")
    return SchemaAnswer(wanted.schema, wanted.strict)
