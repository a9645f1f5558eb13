"""Requests of ours as the bodies of llama.cpp's POST /completion, and its replies as outputs of ours.

The server's fields: llama.cpp's tools/server/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from puna.engine.request import FinishReason, Request, RequestStats, StepOutput, TokenLogprob

_SAMPLERS = ("penalties", "top_k", "typ_p", "top_p", "min_p", "temperature")
"""Those that ours have, in their order."""
_LAST_FIELDS = (
    "content",
    "tokens",
    "stop",
    "stop_type",
    "stopping_word",
    "tokens_predicted",
    "tokens_evaluated",
    "timings",
)
"""Of the last chunk, which would repeat the prompt and all settings."""
_RANDOM_SEED = -1
_ALL = 2**31 - 1
_NO_LOGPROB = -1e4


class Likely(msgspec.Struct, frozen=True):
    """A token and its log-probability."""

    id: int
    logprob: float | None = None
    """None: it has none, because it is impossible."""
    bytes: list[int] = []
    top_logprobs: list[Likely] = []


class Timings(msgspec.Struct, frozen=True):
    """Milliseconds, and tokens."""

    cache_n: int = 0
    prompt_n: int = 0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0


class Failure(msgspec.Struct, frozen=True):
    """Why the server gives nothing."""

    message: str = "it does not say why"


class Chunk(msgspec.Struct, frozen=True):
    """One event of a stream."""

    content: str = ""
    tokens: list[int] = []
    stop: bool = False
    stop_type: Literal["none", "eos", "limit", "word"] = "none"
    stopping_word: str = ""
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    """Of the prompt, those that were there already included."""
    completion_probabilities: list[Likely] = []
    timings: Timings | None = None
    error: Failure | None = None


def completion(request: Request, prompt: list[int], shown: Sequence[str], max_tokens: int) -> dict[str, Any]:
    """The body of the request to the server. shown: texts of its shown_tokens."""
    sampling = request.sampling
    body = {
        "prompt": prompt,
        "stream": True,
        "return_tokens": True,
        "response_fields": _LAST_FIELDS,
        "sse_ping_interval": -1,
        # Its slots are everybody's: what has a salt of its own does not use what others left there.
        "cache_prompt": request.cache_prompt and not request.cache_salt,
        "n_predict": max_tokens,
        "samplers": _SAMPLERS,
        "temperature": sampling.temperature,
        "top_k": max(sampling.top_k, 0),
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "typical_p": sampling.typical_p,
        "repeat_last_n": _ALL if sampling.repeat_last_n < 0 else sampling.repeat_last_n,
        "repeat_penalty": sampling.repeat_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": _RANDOM_SEED if sampling.seed is None else sampling.seed,
        "stop": request.stop,
    }
    if sampling.logit_bias:
        body["logit_bias"] = list(sampling.logit_bias.items())
    if sampling.num_logprobs >= 0:
        body["n_probs"] = max(sampling.num_logprobs, 1)
    if request.json_schema:
        body["json_schema"] = msgspec.Raw(request.json_schema.encode())
    if shown:
        body["preserved_tokens"] = shown
    if not request.stop_tokens:
        body["ignore_eos"] = True
    return body


def with_images(request: Request, marker: str) -> dict[str, Any]:
    """Fields of that body for a prompt with images. What stands for one can be written by nobody else: a text
    has a space in its place, so that what is around it does not become another.
    """
    pieces = [piece.replace(marker, " ") for piece in request.pieces]
    prompt = {"prompt_string": marker.join(pieces), "multimodal_data": request.images}
    return {"prompt": prompt, "timings_per_token": True}


class Reply:
    """Turns chunks into outputs.

    most: tokens of prompt and reply. How many a prompt with images has, only the server knows.
    """

    def __init__(self, request: Request, most: int) -> None:
        self._request = request
        self._most = most
        self._held: list[Chunk] = []
        """Those without text: the beginning of a stop string or the end of the reply, perhaps."""

    def add(self, chunk: Chunk) -> StepOutput | None:
        """None: nothing is to be told yet."""
        if chunk.error is not None:
            return self.failed(chunk.error.message, is_refused=False)
        if not chunk.stop:
            self._held.append(chunk)
            if self._request.images and chunk.tokens_evaluated + chunk.tokens_predicted >= self._most:
                return self._at_end_of_context(chunk)
            return self._output(chunk.content) if chunk.content else None
        if chunk.stop_type in ("eos", "word"):
            self._held.clear()
        reason: FinishReason = "length" if chunk.stop_type == "limit" else "stop"
        output = self._output(chunk.content)
        output.finish_reason = reason
        output.stop_string = chunk.stopping_word
        output.stats = _stats(chunk)
        return output

    def _at_end_of_context(self, chunk: Chunk) -> StepOutput:
        if chunk.tokens_evaluated >= self._most:
            text = f"the prompt has {chunk.tokens_evaluated} tokens with its images, the context {self._most}"
            return self.failed(text, is_refused=True)
        output = self._output(chunk.content)
        output.finish_reason, output.stats = "length", _stats(chunk)
        return output

    def failed(self, text: str, *, is_refused: bool) -> StepOutput:
        """The last output of a reply that went wrong. is_refused: the request is why."""
        return StepOutput(
            request_id=self._request.id,
            finish_reason="refused" if is_refused else "error",
            error=f"llama.cpp's server: {text}",
        )

    def _output(self, text: str) -> StepOutput:
        chunks, self._held = self._held, []
        stops = set(self._request.stop_tokens)
        likely = [each for chunk in chunks for each in chunk.completion_probabilities]
        num_logprobs = self._request.sampling.num_logprobs
        return StepOutput(
            request_id=self._request.id,
            text=text,
            tokens=[token for chunk in chunks for token in chunk.tokens if token not in stops],
            logprobs=[_logprob(each, num_logprobs) for each in likely] if num_logprobs >= 0 else None,
        )


def _logprob(likely: Likely, num_top: int) -> TokenLogprob:
    return TokenLogprob(
        token=likely.id,
        logprob=_NO_LOGPROB if likely.logprob is None else likely.logprob,
        bytes=bytes(likely.bytes),
        top=[_logprob(each, 0) for each in likely.top_logprobs[:num_top]],
    )


def _stats(chunk: Chunk) -> RequestStats:
    timings = chunk.timings or Timings()
    return RequestStats(
        prompt_tokens=chunk.tokens_evaluated,
        cached_tokens=timings.cache_n,
        prompt_ns=round(timings.prompt_ms * 1e6),
        generated_tokens=chunk.tokens_predicted,
        generation_ns=round(timings.predicted_ms * 1e6),
    )
