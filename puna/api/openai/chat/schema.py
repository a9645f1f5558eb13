"""What clients send for a chat completion, as far as there is something here to honour it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from puna.api.openai.formats import ResponseFormat
from puna.api.openai.reasoning import Reasoning
from puna.api.openai.sampling import SamplingRequest
from puna.api.requests import MOST_MESSAGES, MOST_TOOLS
from puna.chat.tools import ToolFunction


class EarlierFunction(msgspec.Struct):
    """What was called in an earlier reply; arguments are a JSON text."""

    name: str = ""
    arguments: str = "{}"


class EarlierCall(msgspec.Struct):
    """A call in an earlier reply."""

    id: str = ""
    function: EarlierFunction = msgspec.field(default_factory=EarlierFunction)


class RequestMessage(msgspec.Struct):
    """A message; content is a text, a list of parts, or null beside calls or a refusal."""

    role: str = ""
    content: Any = None
    name: str = ""
    reasoning: str = ""
    reasoning_content: str = ""
    """The same under the name that other servers give it."""
    refusal: str = ""
    tool_calls: Annotated[list[EarlierCall], msgspec.Meta(max_length=MOST_TOOLS)] = []
    function_call: EarlierFunction = msgspec.field(default_factory=EarlierFunction)
    """In place of `tool_calls` in OpenAI's first API of functions."""
    tool_call_id: str = ""


class OfferedTool(msgspec.Struct):
    """A tool that the model may call."""

    type: str = "function"
    function: ToolFunction = msgspec.field(default_factory=lambda: ToolFunction(""))


class ChatCompletionRequest(SamplingRequest, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[list[RequestMessage], msgspec.Meta(max_length=MOST_MESSAGES)] = msgspec.field(
        default_factory=list
    )
    max_completion_tokens: int | None = None
    tools: Annotated[list[OfferedTool], msgspec.Meta(max_length=MOST_TOOLS)] = msgspec.field(
        default_factory=list
    )
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    functions: Annotated[list[ToolFunction], msgspec.Meta(max_length=MOST_TOOLS)] = msgspec.field(
        default_factory=list
    )
    """In place of `tools` in OpenAI's first API of functions."""
    function_call: Any = None
    response_format: ResponseFormat = msgspec.field(default_factory=ResponseFormat)
    reasoning: Reasoning = msgspec.field(default_factory=Reasoning)
    reasoning_effort: str | None = None
    logprobs: bool = False
    top_logprobs: int = 0

    @property
    def uses_functions(self) -> bool:
        """Whether calls are written in OpenAI's first API of functions."""
        return bool(self.functions) and not self.tools
