"""The response object."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from puna.api.openai.responses.items import OutputItem, Status, new_id
from puna.api.openai.responses.schema import ResponsesRequest
from puna.api.replying.events import Finish


class InputTokensDetails(msgspec.Struct):
    """Cached are tokens whose KV was there before the request came; keeping KV is not accounted for."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True):
    """Tokens of thoughts are not counted apart: 0."""

    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct, kw_only=True):
    """Tokens of the prompt, the reply, and both."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()
    total_tokens: int


class ResponseError(msgspec.Struct):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct):
    """Why a response ended before its end."""

    reason: str


class ReasoningEcho(msgspec.Struct):
    """As requested."""

    effort: str | None
    summary: str | None


class ResponseObject(msgspec.Struct, kw_only=True):
    """A response; what follows `output` are the request's fields, or what they are by default."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Status = "in_progress"
    model: str
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    output: Sequence[OutputItem] = ()
    usage: ResponseUsage | None = None
    instructions: str | None
    tools: list[Any]
    tool_choice: Any
    parallel_tool_calls: bool
    text: dict[str, Any]
    reasoning: ReasoningEcho
    temperature: float
    top_p: float
    max_output_tokens: int | None
    truncation: str
    top_logprobs: int
    presence_penalty: float = 0
    frequency_penalty: float = 0
    max_tool_calls: int | None = None
    store: bool = False
    """Nothing is."""
    background: bool = False
    service_tier: str = "default"
    metadata: dict[str, Any]
    previous_response_id: str | None = None
    safety_identifier: Any
    prompt_cache_key: Any
    user: Any


def new_response(request: ResponsesRequest) -> ResponseObject:
    """As it begins."""
    return ResponseObject(
        id=new_id("resp"),
        created_at=int(time.time()),
        model=request.model,
        instructions=request.instructions,
        tools=request.tools,
        tool_choice="auto" if request.tool_choice is None else request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
        text=_text_echo(request),
        reasoning=ReasoningEcho(request.reasoning.effort, request.reasoning.summary),
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        max_output_tokens=request.max_output_tokens,
        truncation=request.truncation or "disabled",
        top_logprobs=request.top_logprobs,
        metadata=request.metadata,
        safety_identifier=request.safety_identifier,
        prompt_cache_key=request.prompt_cache_key,
        user=request.user,
    )


def usage_of(finish: Finish) -> ResponseUsage:
    """Of a reply that has ended."""
    counts = finish.counts
    prompt, reply = (counts.prompt_eval_count, counts.eval_count) if counts else (0, 0)
    return ResponseUsage(
        input_tokens=prompt,
        input_tokens_details=InputTokensDetails(finish.cached_tokens),
        output_tokens=reply,
        total_tokens=prompt + reply,
    )


def _text_echo(request: ResponsesRequest) -> dict[str, Any]:
    wanted = request.text.format
    form: dict[str, Any] = {"type": wanted.type}
    if wanted.schema is not None:
        form |= {"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict}
    return {"format": form}
