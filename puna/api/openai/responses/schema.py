"""What clients send for a response, as far as there is something here to honour or to repeat."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from puna.api.errors import ApiError
from puna.api.openai.formats import ResponseFormat
from puna.api.openai.reasoning import Reasoning
from puna.api.openai.sampling import reply_limit, sampling_options
from puna.api.requests import MOST_MESSAGES, MOST_TOOLS, Extensions

_LOGPROBS = "message.output_text.logprobs"
_NOT_STORED = "responses are not stored: send the whole conversation as input"


class TextConfig(msgspec.Struct):
    """`text` of a request."""

    format: ResponseFormat = msgspec.field(default_factory=ResponseFormat)
    verbosity: Any = None


class ResponsesRequest(Extensions, kw_only=True):
    """POST /v1/responses."""

    model: str = ""
    input: str | Annotated[list[Any], msgspec.Meta(max_length=MOST_MESSAGES)] = ""
    instructions: str | None = None
    tools: Annotated[list[Any], msgspec.Meta(max_length=MOST_TOOLS)] = msgspec.field(default_factory=list)
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    reasoning: Reasoning = msgspec.field(default_factory=Reasoning)
    text: TextConfig = msgspec.field(default_factory=TextConfig)
    include: list[str] = msgspec.field(default_factory=list)
    top_logprobs: int = 0
    truncation: str | None = None
    background: bool = False
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    prompt_cache_key: Any = None
    safety_identifier: Any = None
    user: Any = None

    @property
    def wants_logprobs(self) -> bool:
        """Of the tokens of what is said."""
        return self.top_logprobs > 0 or _LOGPROBS in self.include

    def options(self) -> dict[str, Any]:
        """As Ollama's options: the temperature is OpenAI's, whatever the model's parameters say. ApiError
        (400).
        """
        return sampling_options(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=self.top_p,
            num_predict=reply_limit("max_output_tokens", self.max_output_tokens),
        )

    def check(self) -> None:
        """ApiError (400) for what would be answered wrongly if it were ignored."""
        if self.previous_response_id is not None:
            raise ApiError(400, f"previous_response_id: {_NOT_STORED}")
        if self.conversation is not None:
            raise ApiError(400, f"conversation: {_NOT_STORED}")
        if self.prompt is not None:
            raise ApiError(400, "prompt: there are no stored prompts here; send instructions and input")
        if self.background:
            raise ApiError(400, "background: responses are given at once or streamed, not stored for later")
        if self.truncation not in (None, "auto", "disabled"):
            raise ApiError(400, 'truncation must be "auto" or "disabled"')
        if not self.input:
            raise ApiError(400, "input is required")
