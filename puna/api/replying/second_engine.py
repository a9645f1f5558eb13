"""What requests may ask of a model that llama.cpp's server runs; the rest is refused rather than left out."""

from __future__ import annotations

import msgspec

from puna.api.errors import ApiError
from puna.chat.grammars.answer import AnswerFormat, JsonAnswer, SchemaAnswer
from puna.chat.prompt import Prompt
from puna.engine.request import Request

_ENGINE = "the second engine (llama.cpp's server), which runs this model,"


def for_second_engine(
    request: Request, prompt: Prompt, answer: AnswerFormat | None, *, takes_text: bool
) -> Request:
    """answer: what the content of the reply must be. takes_text: the engine makes the prompt's
    text into tokens. ApiError (400) for what the engine cannot do.
    """
    if takes_text and prompt.text and not request.images:
        request = msgspec.structs.replace(request, text=prompt.text, prompt=[])
    if request.session is not None:
        raise ApiError(400, f"{_ENGINE} keeps no sessions")
    if prompt.reply.must_call:
        raise ApiError(400, f"{_ENGINE} cannot be held to calling a tool")
    if answer is None:  # tools may be called, with nothing that holds the reply to a call's form
        return msgspec.structs.replace(request, grammar="")
    if prompt.reply.may_call:
        raise ApiError(400, f"{_ENGINE} takes either tools or a format")
    if prompt.reply.may_think:
        raise ApiError(400, f"{_ENGINE} cannot think before it answers in a format: try think: false")
    return msgspec.structs.replace(request, grammar="", json_schema=_schema(answer))


def _schema(answer: AnswerFormat) -> str:
    match answer:
        case JsonAnswer():
            return '{"type": "object"}'
        case SchemaAnswer(schema=schema):
            return msgspec.json.encode(schema).decode()
    raise ApiError(400, f"{_ENGINE} takes a format that is JSON or a JSON Schema only")
