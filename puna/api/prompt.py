"""From a request to the tokens that the model continues."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from puna.api.errors import ApiError
from puna.api.options import Options
from puna.api.requests import ChatRequest, GenerateRequest, InferenceRequest, Think
from puna.chat.messages import Message
from puna.chat.thinking import ends_with_open_tag, without_old_thoughts
from puna.chat.truncation import fit_messages, fit_prompt
from puna.daemon.runtime import ResidentModel

_TOO_LONG = (
    "the prompt is longer than the context length currently available to the model; shorten the prompt, "
    "adjust the context length in settings, or use a model with a longer context length"
)


class Prompt(NamedTuple):
    """What a model is given."""

    text: str
    tokens: list[int]
    inside_thoughts: bool | None = None
    """Whether the reply begins with thoughts already open; None: it has none."""


def raw_prompt(request: GenerateRequest, resident: ResidentModel, options: Options, _: Think) -> Prompt:
    """The prompt as it is. ApiError (400) if it may not be shortened and does not fit."""
    tokens = resident.tokenizer.encode(request.prompt)
    return Prompt(request.prompt, _fit(tokens, request, resident, options))


def token_prompt(
    tokens: list[int], request: GenerateRequest, resident: ResidentModel, options: Options
) -> Prompt:
    """Tokens as they are. ApiError (400), also if the model does not have one of them."""
    return Prompt("", _fit(_checked(tokens, resident, "prompt"), request, resident, options))


def generate_prompt(
    request: GenerateRequest, resident: ResidentModel, options: Options, think: Think
) -> Prompt:
    """The prompt as a conversation, behind the tokens of an earlier one. ApiError (400), TemplateError."""
    system = request.system or resident.model.system
    messages = [Message(role="system", content=system)] if system else []
    if not request.context:
        messages += _embedded(resident)
    messages.append(Message(role="user", content=request.prompt))
    return _conversation(messages, request, resident, options, think, context=request.context)


def chat_prompt(request: ChatRequest, resident: ResidentModel, options: Options, think: Think) -> Prompt:
    """The conversation. ApiError (400), TemplateError."""
    requested = [msgspec.structs.replace(message, role=message.role.lower()) for message in request.messages]
    messages = [*_embedded(resident), *requested]
    if resident.model.system and requested[0].role != "system":
        messages.insert(0, Message(role="system", content=resident.model.system))
    if _forgets_thoughts(resident):
        messages = without_old_thoughts(messages)
    return _conversation(messages, request, resident, options, think)


def _conversation(
    messages: list[Message],
    request: InferenceRequest,
    resident: ResidentModel,
    options: Options,
    think: Think,
    context: list[int] | None = None,
) -> Prompt:
    """Renders the messages that fit, and puts the tokens of `context` in front."""
    renderer = _Renderer(resident, think)
    if request.truncate:
        messages = fit_messages(messages, renderer.num_tokens, resident.context_length)
    text = renderer.render(messages)
    if context:
        tokens = [*_checked(context, resident, "context"), *renderer.continuation(text)]
    else:
        tokens = resident.tokenizer.encode_prompt(text)
    inside_thoughts = ends_with_open_tag(text) if think.enabled else None
    return Prompt(text, _fit(tokens, request, resident, options), inside_thoughts)


class _Renderer:
    """Messages to text with a model's template, and text to tokens. Raises TemplateError."""

    def __init__(self, resident: ResidentModel, think: Think) -> None:
        self._template = resident.chat
        self._tokenizer = resident.tokenizer
        self._variables: dict[str, Any] = {}
        if self._template is not None and self._template.supports_thinking:
            self._variables["enable_thinking"] = think.enabled
            if think.level is not None:
                self._variables["reasoning_effort"] = think.level

    def render(self, messages: list[Message]) -> str:
        if self._template is None:  # then a conversation is just what user and model wrote
            return "".join(message.content for message in messages if message.role in ("user", "assistant"))
        return self._template.render(messages, **self._variables)

    def num_tokens(self, messages: list[Message]) -> int:
        """Of the rendered messages, without BOS."""
        return len(self._tokenizer.encode(self.render(messages), add_special=False))

    def continuation(self, text: str) -> list[int]:
        """Tokens of a prompt that goes behind others: a BOS in front of it is left out."""
        tokens = self._tokenizer.encode_prompt(text)
        return tokens[1:] if self._tokenizer.add_bos else tokens


def _fit(
    tokens: list[int], request: InferenceRequest, resident: ResidentModel, options: Options
) -> list[int]:
    """Tokens that leave room in the context for at least one more. ApiError (400)."""
    if not tokens:
        raise ApiError(400, "the prompt is empty")
    limit = resident.context_length
    if len(tokens) < limit:
        return tokens
    if not (request.truncate and request.shift):
        raise ApiError(400, _TOO_LONG)
    return fit_prompt(tokens, limit, options.num_keep, resident.tokenizer.add_bos)


def _checked(tokens: list[int], resident: ResidentModel, field: str) -> list[int]:
    for token in tokens:
        if not 0 <= token < resident.tokenizer.vocab_size:
            raise ApiError(400, f"{field} has token {token}, which the model does not have")
    return tokens


def _embedded(resident: ResidentModel) -> list[Message]:
    return [Message(role=message.role, content=message.content) for message in resident.model.messages]


def _forgets_thoughts(resident: ResidentModel) -> bool:
    """Models that must not see what they thought before the user's latest message."""
    model = resident.model
    return model.config.family == "qwen3" or model.name.model.lower() == "deepseek-r1"
