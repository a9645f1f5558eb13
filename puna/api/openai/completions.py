"""POST /v1/completions."""

from __future__ import annotations

from starlette.requests import Request

from puna.api import inference
from puna.api.body import read_body
from puna.api.context import context_of
from puna.api.events import Delta, Event, Finish, collect
from puna.api.openai.framing import SseFraming, sse
from puna.api.openai.objects import Head, TextChoice, Usage, usage_of
from puna.api.openai.schema import CompletionRequest
from puna.api.openai.translate import to_generate
from puna.api.streaming import EventResponse


async def completions(request: Request) -> EventResponse[Event]:
    """Continues a prompt."""
    body = await read_body(request, CompletionRequest, empty="EOF")
    events = inference.generate(context_of(request), to_generate(body))
    head = Head.new("cmpl", "text_completion", body.model)
    framing = CompletionFraming(head, include_usage=body.stream_options.include_usage)
    return EventResponse(events, framing, stream=body.stream)


class CompletionFraming(SseFraming):
    """Text completion objects and chunks, which are of the same kind."""

    def __init__(self, head: Head, *, include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage

    def frame(self, event: Event) -> bytes:
        if isinstance(event, Delta):
            return self._chunk(event.content, None) if event.content else b""
        assert isinstance(event, Finish), "rendered prompts are not asked for here"
        usage = sse(self._head.encode([], usage_of(event.counts))) if self._include_usage else b""
        return self._chunk("", event.reason) + usage

    def body(self, events: list[Event]) -> bytes:
        whole = collect(events)
        choice = TextChoice(text=whole.content, index=0, finish_reason=whole.finish.reason)
        return self._head.encode([choice], usage_of(whole.finish.counts))

    def _chunk(self, text: str, finish_reason: str | None) -> bytes:
        choice = TextChoice(text=text, index=0, finish_reason=finish_reason)
        return sse(self._head.encode([choice], Usage() if self._include_usage else None))
