"""What OpenAI's clients send and get, as far as there is something here to honour it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from puna.api.errors import ApiError
from puna.api.requests import MOST_MESSAGES, MOST_TOOLS, Extensions


class StreamOptions(msgspec.Struct):
    """`stream_options`."""

    include_usage: bool = False


class SamplingRequest(Extensions, kw_only=True):
    """Fields that both kinds of completion share."""

    model: str = ""
    stream: bool = False
    stream_options: StreamOptions = msgspec.field(default_factory=StreamOptions)
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    stop: Any = None
    n: int = 1

    def options(self) -> dict[str, Any]:
        """As Ollama's options: temperature and top_p are OpenAI's, whatever the model's parameters say."""
        options = {
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "top_p": 1.0 if self.top_p is None else self.top_p,
            "num_predict": self.max_tokens,
            "seed": self.seed,
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "stop": _stop_list(self.stop),
        }
        return {name: value for name, value in options.items() if value is not None}


def _stop_list(stop: Any) -> list[str] | None:
    if stop is None or (isinstance(stop, list) and not stop):
        return None
    for item in (items := stop if isinstance(stop, list) else [stop]):
        if not isinstance(item, str):
            raise ApiError(400, f"invalid type for 'stop' field: {type(item).__name__}")
    return items


class Reasoning(msgspec.Struct):
    """`reasoning` of a request."""

    effort: str | None = None


class ResponseFormat(msgspec.Struct):
    """`response_format` of a request."""

    type: str = "text"
    json_schema: dict[str, Any] = {}


class MessageToolCallFunction(msgspec.Struct):
    """A call in an earlier reply; arguments are a JSON text."""

    name: str = ""
    arguments: str = "{}"


class MessageToolCall(msgspec.Struct):
    """A call in an earlier reply."""

    id: str = ""
    function: MessageToolCallFunction = msgspec.field(default_factory=MessageToolCallFunction)


class RequestMessage(msgspec.Struct):
    """A message; content is a text, a list of parts, or null beside tool calls."""

    role: str = ""
    content: Any = None
    name: str = ""
    reasoning: str = ""
    tool_calls: list[MessageToolCall] = []
    tool_call_id: str = ""


class ChatCompletionRequest(SamplingRequest, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[list[RequestMessage], msgspec.Meta(max_length=MOST_MESSAGES)] = msgspec.field(
        default_factory=list
    )
    tools: Annotated[list[Any], msgspec.Meta(max_length=MOST_TOOLS)] = msgspec.field(default_factory=list)
    response_format: ResponseFormat = msgspec.field(default_factory=ResponseFormat)
    reasoning: Reasoning = msgspec.field(default_factory=Reasoning)
    reasoning_effort: str | None = None
    logprobs: bool = False
    top_logprobs: int = 0


class CompletionRequest(SamplingRequest, kw_only=True):
    """POST /v1/completions."""

    prompt: Any = ""
    suffix: str = ""
    best_of: int | None = None
    logprobs: int | None = None
