"""What clients send for a completion, as far as there is something here to honour it."""

from __future__ import annotations

from typing import Any

from puna.api.openai.sampling import SamplingRequest
from puna.api.requests import GenerateRequest, extensions_of


class CompletionRequest(SamplingRequest, kw_only=True):
    """POST /v1/completions."""

    prompt: Any = ""
    suffix: str = ""
    best_of: int | None = None
    logprobs: int | None = None


def to_generate(request: CompletionRequest, *, with_logprobs: bool) -> GenerateRequest:
    """As Ollama's generate, all but the prompts. ApiError (400) for what can't be translated."""
    return GenerateRequest(
        model=request.model,
        stream=request.stream,
        suffix=request.suffix,
        options=request.options(),
        logprobs=with_logprobs,
        top_logprobs=request.logprobs or 0,
        **extensions_of(request),
    )
