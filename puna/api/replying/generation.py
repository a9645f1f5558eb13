"""An engine's request and the model's prompt, turned into the events of a reply."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from puna.api.errors import ApiError
from puna.api.replying.events import Counts, Delta, Event, Finish
from puna.api.replying.tool_calls import CallNumbers
from puna.chat.prompt import Prompt
from puna.chat.replies.pieces import Piece, ReplyParser
from puna.chat.replies.reply_format import reply_parser
from puna.chat.tools import Tool
from puna.daemon.busy import ServerBusy
from puna.daemon.runtime import Runtime
from puna.engine.request import GenerationError, Request, RequestStats, StepOutput


@dataclass(slots=True, kw_only=True)
class Clock:
    """When a request came, and when its model was there; time.monotonic_ns()."""

    arrival_ns: int
    loaded_ns: int = 0


async def generate_reply(
    runtime: Runtime,
    request: Request,
    prompt: Prompt,
    clock: Clock,
    *,
    tools: Sequence[Tool] = (),
    index: int = 0,
    with_context: bool,
) -> AsyncGenerator[Event, None]:
    """Deltas, then a Finish with counts. Closing the generator cancels the request.

    tools: those that were offered. index: number of the choice. with_context: Finish has the tokens of prompt
    and reply.
    Raises GenerationError, ServerBusy, WorkerDied.
    """
    tokens: list[int] = []
    parser, numbers = reply_parser(prompt.reply, tools), CallNumbers()
    async with runtime.stream(request) as outputs:
        async for output in outputs:
            raise_failure(output)
            tokens += output.tokens if with_context else []
            piece = _piece(parser, output)
            thinking = piece.thinking if prompt.reply.shows_thoughts else ""
            calls = [numbers.numbered(call) for call in piece.calls]
            content = "" if prompt.reply.must_call else piece.content
            delta = Delta(content, thinking, output.logprobs or [], index, prompt_tokens=len(prompt.tokens))
            if delta.content or delta.thinking or delta.logprobs:
                yield delta
            if calls:
                yield Delta(index=index, tool_calls=calls, prompt_tokens=len(prompt.tokens))
            if output.stats is not None:
                # Of a prompt that went as text, nobody here knows the tokens.
                context = [*prompt.tokens, *tokens] if with_context and not request.text else []
                reason = "length" if output.finish_reason == "length" else "stop"
                stats = output.stats
                counts = _counts(stats, clock)
                yield Finish(reason, counts, context, stats.cached_tokens, index, output.stop_string)


def raise_failure(output: StepOutput) -> None:
    """GenerationError, ServerBusy, ApiError (400): for a request that has failed."""
    if output.finish_reason == "refused":
        raise ApiError(400, output.error or "the request cannot be served")
    if output.finish_reason == "busy":
        raise ServerBusy
    if output.finish_reason == "error":
        raise GenerationError(output.error)
    if output.finish_reason == "cancelled":
        raise GenerationError("the request was cancelled")


def _piece(parser: ReplyParser, output: StepOutput) -> Piece:
    piece = parser.add(output.text)
    return piece if output.finish_reason is None else piece + parser.flush()


def _counts(stats: RequestStats, clock: Clock) -> Counts:
    return Counts(
        total_duration=time.monotonic_ns() - clock.arrival_ns,
        load_duration=clock.loaded_ns - clock.arrival_ns,
        prompt_eval_count=stats.prompt_tokens,
        prompt_eval_duration=stats.prompt_ns,
        eval_count=stats.generated_tokens,
        eval_duration=stats.generation_ns,
    )
