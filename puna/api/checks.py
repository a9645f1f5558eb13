"""What a model can't do is refused before the model is loaded."""

from __future__ import annotations

import json
from typing import Any

from puna._native import NativeError
from puna.api.errors import ApiError
from puna.api.options import Options
from puna.api.requests import Extensions, GenerateRequest, InferenceRequest, Think
from puna.chat.grammars.answer import AnswerFormat, JsonAnswer, LarkAnswer, RegexAnswer, SchemaAnswer
from puna.chat.model_record import ModelRecord
from puna.engine.sequences.samplers import new_sampler
from puna.kv.files.session_manifest import check_session_name
from puna.registry import StoredModel

_MAX_TOP_LOGPROBS = 20
_MAX_PRIORITY = 10
_MAX_SALT_CHARS = 256
_SHOWN_CHARS = 40


def check_top_logprobs(count: int) -> None:
    """ApiError (400)."""
    if not 0 <= count <= _MAX_TOP_LOGPROBS:
        raise ApiError(400, f"top_logprobs must be between 0 and {_MAX_TOP_LOGPROBS}")


def check_sampling(options: Options) -> None:
    """ApiError (400) for an option outside of the range in which logits stay finite."""
    try:
        new_sampler(options.sampling(num_logprobs=-1))
    except NativeError as error:
        raise ApiError(400, str(error)) from error


def check_tokens_exist(options: Options, vocab_size: int) -> None:
    """ApiError (400) for options that speak of tokens which the model does not have."""
    if (token := max(options.logit_bias, default=0)) >= vocab_size:
        raise ApiError(400, f"logit_bias has token {token}; the model's vocabulary has {vocab_size}")


def check_extensions(request: Extensions, num_replies: int) -> None:
    """ApiError (400), InvalidSessionName."""
    if not -_MAX_PRIORITY <= request.priority <= _MAX_PRIORITY:
        raise ApiError(400, f"priority must be between -{_MAX_PRIORITY} and {_MAX_PRIORITY}")
    if len(request.cache_salt) > _MAX_SALT_CHARS:
        raise ApiError(400, f"cache_salt may have {_MAX_SALT_CHARS} characters at most")
    if request.session is not None:
        check_session_name(request.session)
        if num_replies > 1:
            raise ApiError(400, "a session goes on with one reply: it takes one prompt, and no n or best_of")


def check_raw(request: GenerateRequest) -> None:
    """ApiError (400) for fields that make no sense beside `raw`."""
    if request.raw and (request.template or request.system or request.context):
        raise ApiError(400, "raw mode does not support template, system, or context")


def effective_think(request: InferenceRequest, record: ModelRecord, *, must_think: bool = True) -> Think:
    """A model that can think does, unless told not to. ApiError (400): told to, but it can't, unless it need
    not.
    """
    think = request.think_mode()
    can_think = "thinking" in record.capabilities
    if think is None:
        return Think(can_think)
    if think.enabled and not can_think:
        if not must_think:
            return Think(False)
        raise ApiError(400, f'"{request.model}" does not support thinking')
    return think


def check_capabilities(
    request: InferenceRequest, model: StoredModel, record: ModelRecord, verb: str, needs: tuple[str, ...]
) -> None:
    """needs: capabilities besides completion. ApiError (400) names all that the model lacks."""
    if "completion" not in record.capabilities:
        raise ApiError(400, f'"{request.model}" does not support {verb}')
    can = set(record.capabilities)
    if model.projector_path is None and not record.has_projector:
        can.discard("vision")
    missing = [capability for capability in needs if capability not in can]
    if missing:
        raise ApiError(400, "\n".join(f"{model.name} does not support {name}" for name in missing))
    if {"insert", "vision"} <= set(needs):
        raise ApiError(400, "a prompt with a suffix takes no images")


def answer_format(wanted: Any) -> AnswerFormat | None:
    """None: free text. ApiError for what is no format."""
    if isinstance(wanted, AnswerFormat):
        return wanted
    if wanted is None or wanted == "":
        return None
    if wanted == "json":
        return JsonAnswer()
    if isinstance(wanted, dict):
        return grammar_answer(wanted) if wanted.get("type") == "grammar" else SchemaAnswer(wanted)
    told = "an array" if isinstance(wanted, list) else json.dumps(wanted)[:_SHOWN_CHARS]
    raise ApiError(500, f'invalid format: {told}; expected "json" or a valid JSON Schema object')


def grammar_answer(wanted: dict[str, Any]) -> AnswerFormat:
    """Of `{"type": "grammar", "syntax": "regex" or "lark", "definition": TEXT}`, OpenAI's form for custom
    tools; here it is a format, too. ApiError (400).
    """
    definition = wanted.get("definition")
    if isinstance(definition, str):
        match wanted.get("syntax"):
            case "regex":
                return RegexAnswer(definition)
            case "lark":
                return LarkAnswer(definition)
    raise ApiError(400, 'a grammar needs a syntax, "regex" or "lark", and a definition, which is a text')
