"""A resident model and a prompt, turned into the events of a reply."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from puna.api.events import Counts, Delta, Event, Finish
from puna.api.prompt import Prompt
from puna.chat.thinking import ThinkingParser
from puna.daemon.generation import GenerationFinish, GenerationJob, TextChunk
from puna.daemon.runtime import ResidentModel
from puna.engine.request import RequestStats

_MAX_REPEATS = 30


@dataclass(slots=True, kw_only=True)
class Clock:
    """When a request came, and when its model was there; time.monotonic_ns()."""

    arrival_ns: int
    loaded_ns: int = 0


async def generate_reply(
    resident: ResidentModel,
    prompt: Prompt,
    job: GenerationJob,
    clock: Clock,
    *,
    index: int = 0,
    with_context: bool,
) -> AsyncGenerator[Event, None]:
    """Deltas, then a Finish with counts. Closing the generator cancels the request.

    index: number of the choice. with_context: Finish has the tokens of prompt and reply.
    Raises GenerationError, ServerBusy, WorkerDied.
    """
    tokens: list[int] = []
    parser = None if prompt.inside_thoughts is None else ThinkingParser(started=prompt.inside_thoughts)
    runaway = _RunawayGuard(len(prompt.tokens))
    async with aclosing(resident.generate(job)) as chunks:
        async for chunk in chunks:
            tokens += chunk.tokens
            finish = chunk.finish or runaway.check(chunk)
            delta = _delta(parser, chunk, index, is_last=finish is not None)
            if delta.content or delta.thinking or delta.logprobs:
                yield delta
            if finish is not None:
                context = [*prompt.tokens, *tokens] if with_context else []
                stats = finish.stats
                yield Finish(finish.reason, _counts(stats, clock), context, stats.cached_tokens, index)
                return


def _delta(parser: ThinkingParser | None, chunk: TextChunk, index: int, *, is_last: bool) -> Delta:
    """parser: tells thoughts from content, if there may be any."""
    thinking, content = ("", chunk.text) if parser is None else parser.add(chunk.text)
    if parser is not None and is_last:
        more_thinking, more_content = parser.flush()
        thinking, content = thinking + more_thinking, content + more_content
    return Delta(content, thinking, chunk.logprobs or [], index)


def _counts(stats: RequestStats, clock: Clock) -> Counts:
    return Counts(
        total_duration=time.monotonic_ns() - clock.arrival_ns,
        load_duration=clock.loaded_ns - clock.arrival_ns,
        prompt_eval_count=stats.prompt_tokens,
        prompt_eval_duration=stats.prompt_ns,
        eval_count=stats.generated_tokens,
        eval_duration=stats.generation_ns,
    )


class _RunawayGuard:
    """Ends a reply that only repeats itself: nobody waits for the end of the context for that."""

    def __init__(self, num_prompt_tokens: int) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._start_ns = time.monotonic_ns()
        self._first_token_ns = 0
        self._num_tokens = 0
        self._last_piece = ""
        self._num_repeats = 0

    def check(self, chunk: TextChunk) -> GenerationFinish | None:
        """How the reply ends if it is to end here; the statistics are as seen from outside the engine."""
        now_ns = time.monotonic_ns()
        self._first_token_ns = self._first_token_ns or now_ns
        self._num_tokens += len(chunk.tokens)
        piece = chunk.text.strip()
        self._num_repeats = self._num_repeats + 1 if piece == self._last_piece else 0
        self._last_piece = piece
        if self._num_repeats <= _MAX_REPEATS:
            return None
        stats = RequestStats(
            prompt_tokens=self._num_prompt_tokens,
            cached_tokens=0,
            prompt_ns=self._first_token_ns - self._start_ns,
            generated_tokens=self._num_tokens,
            generation_ns=now_ns - self._first_token_ns,
        )
        return GenerationFinish("stop", stats)
