"""From a request's tokens to its text: incremental detokenization, stop strings, log-probabilities."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from puna.chat.stop import StopStrings
from puna.daemon.residency import ServerBusy
from puna.engine.request import GenerationError, RequestStats, SamplingParams, StepOutput, TokenLogprob
from puna.tokenizer import Tokenizer


class GenerationJob(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt to continue, in tokens, and when to stop; what is not said here is said in Request."""

    prompt: list[int]
    sampling: SamplingParams = SamplingParams()
    max_tokens: int | None = None
    stop: list[str] = []
    num_threads: int | None = None
    shift: bool = False
    num_keep: int = 0
    priority: int = 0
    cache_prompt: bool = True
    cache_salt: str = ""
    session: str | None = None
    num_draft: int | None = None


@dataclass(frozen=True, slots=True)
class TextLogprob:
    """Log-probability of one token, and of the most likely ones in its place, best first."""

    token: str
    bytes: bytes
    logprob: float
    top: list[TextLogprob] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GenerationFinish:
    """Why and how a generation ended."""

    reason: Literal["stop", "length"]
    stats: RequestStats


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Some of the text, and the tokens that made it; the last chunk has `finish`, and may have no text.

    logprobs: one per token, if the job asked for them.
    """

    text: str
    tokens: list[int]
    logprobs: list[TextLogprob] | None = None
    finish: GenerationFinish | None = None


async def stream_text(
    outputs: AsyncGenerator[StepOutput, None],
    cancel: Callable[[], Awaitable[None]],
    tokenizer: Tokenizer,
    job: GenerationJob,
) -> AsyncGenerator[TextChunk, None]:
    """Turns the steps of one request into text, one chunk per step that completes some.

    cancel: asks the engine to end the request; used when the text reaches a stop string.
    Closes `outputs` on every path. Raises GenerationError, ServerBusy, and what `outputs` raises.
    """
    text = _TextStream(tokenizer, job)
    async with aclosing(outputs):
        async for output in outputs:
            if output.finish_reason is not None:
                yield text.finish(output)
            elif not text.stopped:
                chunk = text.add(output)
                if text.stopped:
                    await cancel()
                if chunk:
                    yield chunk


@dataclass(slots=True)
class _Pending:
    """A token that has not been sent yet; its text begins at character `start` of the whole text."""

    token: int
    logprob: TokenLogprob | None
    start: int


class _TextStream:
    """Tokens in, text out; holds back what may be the beginning of a stop string."""

    def __init__(self, tokenizer: Tokenizer, job: GenerationJob) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = tokenizer.detokenizer()
        self._stops = StopStrings(job.stop)
        self._with_logprobs = job.sampling.num_logprobs >= 0
        self._pending: list[_Pending] = []
        self._num_tokens = 0
        self._num_chars = 0  # detokenized
        self._num_sent = 0  # characters that left in chunks
        self.stopped = False
        """A stop string was found: nothing that comes later counts."""

    def add(self, output: StepOutput) -> TextChunk | None:
        """The text that `output` completes; None if there is none."""
        text = self._accept(output)
        return self._chunk(text) if text else None

    def finish(self, output: StepOutput) -> TextChunk:
        """The rest of the text, from the last output. Raises GenerationError, ServerBusy."""
        if output.finish_reason == "busy":
            raise ServerBusy
        if output.finish_reason == "error" or (output.finish_reason == "cancelled" and not self.stopped):
            raise GenerationError(output.error or "the request was cancelled")
        text = ""
        if not self.stopped:
            text += self._accept(output)
        if not self.stopped:
            text += self._push(self._detokenizer.flush())
        if not self.stopped:
            text += self._stops.flush()
        return self._chunk(text, self._finish(output))

    def _accept(self, output: StepOutput) -> str:
        """Takes in the tokens of one step, up to a stop string; returns the text that may be sent."""
        logprobs: Sequence[TokenLogprob | None] = output.logprobs or [None] * len(output.tokens)
        text = ""
        for token, logprob in zip(output.tokens, logprobs, strict=True):
            self._num_tokens += 1
            piece = self._detokenizer.add(token)
            self._pending.append(_Pending(token, logprob, self._num_chars))
            self._num_chars += len(piece)
            text += self._push(piece)
            if self.stopped:
                break
        return text

    def _push(self, piece: str) -> str:
        text = self._stops.add(piece)
        self.stopped = self._stops.found
        return text

    def _finish(self, output: StepOutput) -> GenerationFinish:
        stats = output.stats
        assert stats is not None, "an output that ends a request has statistics"
        if self.stopped:
            # The engine may have drawn more tokens before it heard of the stop.
            stats.generated_tokens = self._num_tokens
        return GenerationFinish(
            "length" if output.finish_reason == "length" and not self.stopped else "stop", stats
        )

    def _chunk(self, text: str, finish: GenerationFinish | None = None) -> TextChunk:
        """Sends `text` together with the tokens that begin in it.

        |  sent           | text            | held back   |
        0                                   num_sent      num_chars
        A token whose character is incomplete has no text: it goes with the one that completes it.
        """
        self._num_sent += len(text)
        sent = [p for p in self._pending if p.start < self._num_sent or (finish and not self.stopped)]
        self._pending = self._pending[len(sent) :]
        logprobs = [self._text_logprob(p.logprob) for p in sent if p.logprob is not None]
        return TextChunk(text, [p.token for p in sent], logprobs if self._with_logprobs else None, finish)

    def _text_logprob(self, logprob: TokenLogprob) -> TextLogprob:
        top = [self._token_logprob(other.token, other.logprob) for other in logprob.top]
        chosen = self._token_logprob(logprob.token, logprob.logprob)
        return replace(chosen, top=top)

    def _token_logprob(self, token: int, logprob: float) -> TextLogprob:
        data = self._tokenizer.token_bytes(token)
        return TextLogprob(data.decode(errors="replace"), data, logprob)
