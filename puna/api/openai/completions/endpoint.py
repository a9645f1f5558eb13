"""POST /v1/completions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from starlette.requests import Request

from puna.api import inference
from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.openai.choices import Choices, completion_choices, parse_prompts
from puna.api.openai.completions.schema import CompletionRequest, to_generate
from puna.api.openai.completions.text_logprobs import TextLogprobLists, TextLogprobs
from puna.api.openai.framing import SseFraming, sse
from puna.api.openai.objects import NO_USAGE, Head, TextChoice
from puna.api.replying.events import Delta, Event, Finish, collect
from puna.api.replying.streaming import EventResponse
from puna.engine.request import TokenLogprob


async def completions(request: Request) -> EventResponse[Event]:
    """Continues prompts."""
    body = await read_body(request, CompletionRequest, empty="EOF")
    prompts = parse_prompts(body.prompt)
    choices = completion_choices(body, len(prompts))
    ranked = choices.best_of > choices.n
    events = inference.generate(
        context_of(request),
        to_generate(body, with_logprobs=ranked or body.logprobs is not None),
        prompts=prompts,
        num_choices=choices.best_of,
    )
    framing = CompletionFraming(
        Head.new("cmpl", "text_completion", body.model),
        choices,
        include_usage=body.stream_options.include_usage,
        with_logprobs=body.logprobs is not None,
    )
    return EventResponse(events, framing, stream=body.stream)


class CompletionFraming(SseFraming):
    """Text completion objects and chunks, which are of the same kind."""

    def __init__(self, head: Head, choices: Choices, *, include_usage: bool, with_logprobs: bool) -> None:
        super().__init__(head, choices, include_usage=include_usage)
        self._with_logprobs = with_logprobs
        self._lists: defaultdict[int, TextLogprobLists] = defaultdict(TextLogprobLists)

    def frame(self, event: Event) -> bytes:
        if isinstance(event, Delta):
            return self._delta(event)
        assert isinstance(event, Finish), "rendered prompts are not asked for here"
        self._finishes.append(event)
        return self._chunk(TextChoice(text="", index=event.index, finish_reason=event.reason))

    def body(self, events: list[Event]) -> bytes:
        replies = collect(events)
        choices = [
            TextChoice(
                text=reply.content,
                index=index,
                finish_reason=reply.finish.reason,
                logprobs=self._logprobs(index, reply.logprobs),
            )
            for index, reply in enumerate(self._choices.shown(replies))
        ]
        return self._head.encode(choices, self._choices.usage([reply.finish for reply in replies]))

    def _delta(self, event: Delta) -> bytes:
        logprobs = self._logprobs(event.index, event.logprobs)
        if not event.content and logprobs is None:
            return b""
        return self._chunk(
            TextChoice(text=event.content, index=event.index, finish_reason=None, logprobs=logprobs)
        )

    def _logprobs(self, index: int, logprobs: Sequence[TokenLogprob]) -> TextLogprobs | None:
        return self._lists[index].take(logprobs) if self._with_logprobs and logprobs else None

    def _chunk(self, choice: TextChoice) -> bytes:
        return sse(self._head.encode([choice], NO_USAGE if self._include_usage else None))
