"""An engine's request and the model's prompt, turned into the events of a reply."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from puna.api.events import Counts, Delta, Event, Finish
from puna.chat.channels import ChannelParser
from puna.chat.prompt import Prompt
from puna.chat.thinking import ThinkingParser
from puna.daemon.busy import ServerBusy
from puna.daemon.runtime import Runtime
from puna.engine.request import GenerationError, Request, RequestStats, StepOutput


@dataclass(slots=True, kw_only=True)
class Clock:
    """When a request came, and when its model was there; time.monotonic_ns()."""

    arrival_ns: int
    loaded_ns: int = 0


async def generate_reply(
    runtime: Runtime, request: Request, prompt: Prompt, clock: Clock, *, index: int = 0, with_context: bool
) -> AsyncGenerator[Event, None]:
    """Deltas, then a Finish with counts. Closing the generator cancels the request.

    index: number of the choice. with_context: Finish has the tokens of prompt and reply.
    Raises GenerationError, ServerBusy, WorkerDied.
    """
    tokens: list[int] = []
    parser = _parser(prompt)
    async with runtime.stream(request) as outputs:
        async for output in outputs:
            _raise_failure(output)
            tokens += output.tokens if with_context else []
            delta = _delta(parser, output, index)
            if prompt.inside_thoughts is None:
                delta.thinking = ""
            if delta.content or delta.thinking or delta.logprobs:
                yield delta
            if output.stats is not None:
                context = [*prompt.tokens, *tokens] if with_context else []
                reason = "length" if output.finish_reason == "length" else "stop"
                stats = output.stats
                yield Finish(reason, _counts(stats, clock), context, stats.cached_tokens, index)


def _raise_failure(output: StepOutput) -> None:
    if output.finish_reason == "busy":
        raise ServerBusy
    if output.finish_reason == "error":
        raise GenerationError(output.error)
    if output.finish_reason == "cancelled":
        raise GenerationError("the request was cancelled")


def _parser(prompt: Prompt) -> ThinkingParser | ChannelParser | None:
    """What tells thoughts from content, if there may be any."""
    if prompt.in_channels:
        return ChannelParser()
    return None if prompt.inside_thoughts is None else ThinkingParser(started=prompt.inside_thoughts)


def _delta(parser: ThinkingParser | ChannelParser | None, output: StepOutput, index: int) -> Delta:
    thinking, content = ("", output.text) if parser is None else parser.add(output.text)
    if parser is not None and output.finish_reason is not None:
        more_thinking, more_content = parser.flush()
        thinking, content = thinking + more_thinking, content + more_content
    return Delta(content, thinking, output.logprobs or [], index)


def _counts(stats: RequestStats, clock: Clock) -> Counts:
    return Counts(
        total_duration=time.monotonic_ns() - clock.arrival_ns,
        load_duration=clock.loaded_ns - clock.arrival_ns,
        prompt_eval_count=stats.prompt_tokens,
        prompt_eval_duration=stats.prompt_ns,
        eval_count=stats.generated_tokens,
        eval_duration=stats.generation_ns,
    )
