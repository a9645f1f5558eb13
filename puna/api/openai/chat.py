"""POST /v1/chat/completions."""

from __future__ import annotations

from starlette.requests import Request

from puna.api import inference
from puna.api.body import read_body
from puna.api.context import context_of
from puna.api.events import Delta, Event, Finish, collect
from puna.api.openai.framing import SseFraming, sse
from puna.api.openai.objects import ChatChoice, Head, Message, choice_logprobs, usage_of
from puna.api.openai.schema import ChatCompletionRequest
from puna.api.openai.translate import to_chat
from puna.api.streaming import EventResponse


async def chat_completions(request: Request) -> EventResponse[Event]:
    """Continues a conversation."""
    body = await read_body(request, ChatCompletionRequest, empty="EOF")
    events = inference.chat(context_of(request), to_chat(body))
    head = Head.new("chatcmpl", "chat.completion.chunk" if body.stream else "chat.completion", body.model)
    framing = ChatFraming(head, include_usage=body.stream_options.include_usage)
    return EventResponse(events, framing, stream=body.stream)


class ChatFraming(SseFraming):
    """Chat completion objects and chunks."""

    def __init__(self, head: Head, *, include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage
        self._has_begun = False

    def frame(self, event: Event) -> bytes:
        if isinstance(event, Finish):
            return self._finish(event)
        assert isinstance(event, Delta), "rendered prompts are not asked for here"
        logprobs = choice_logprobs(event.logprobs)
        if event.thinking and event.content:
            thought = self._chunk(Message(reasoning=event.thinking))
            thought.logprobs = logprobs
            return self._encode(thought) + self._encode(self._chunk(Message(content=event.content)))
        chunk = self._chunk(Message(content=event.content, reasoning=event.thinking))
        chunk.logprobs = logprobs
        return self._encode(chunk)

    def body(self, events: list[Event]) -> bytes:
        whole = collect(events)
        choice = ChatChoice(
            index=0,
            message=Message(role="assistant", content=whole.content, reasoning=whole.thinking),
            finish_reason=whole.finish.reason,
            logprobs=choice_logprobs(whole.logprobs),
        )
        return self._head.encode([choice], usage_of(whole.finish.counts))

    def _finish(self, event: Finish) -> bytes:
        begin = b"" if self._has_begun else self._encode(self._chunk(Message(content="")))
        end = self._encode(ChatChoice(index=0, delta=Message(), finish_reason=event.reason))
        usage = sse(self._head.encode([], usage_of(event.counts))) if self._include_usage else b""
        return begin + end + usage

    def _chunk(self, delta: Message) -> ChatChoice:
        """The first one says whose message it is."""
        if not self._has_begun:
            self._has_begun = True
            delta.role = "assistant"
        return ChatChoice(index=0, delta=delta, finish_reason=None)

    def _encode(self, choice: ChatChoice) -> bytes:
        return sse(self._head.encode([choice]))
