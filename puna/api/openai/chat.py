"""POST /v1/chat/completions."""

from __future__ import annotations

from starlette.requests import Request

from puna.api import inference
from puna.api.body import read_body
from puna.api.context import context_of
from puna.api.events import Delta, Event, Finish, collect
from puna.api.openai.choices import Choices, chat_choices
from puna.api.openai.framing import SseFraming, sse
from puna.api.openai.objects import ChatChoice, Head, Message, choice_logprobs
from puna.api.openai.schema import ChatCompletionRequest
from puna.api.openai.translate import to_chat
from puna.api.streaming import EventResponse


async def chat_completions(request: Request) -> EventResponse[Event]:
    """Continues a conversation."""
    body = await read_body(request, ChatCompletionRequest, empty="EOF")
    choices = chat_choices(body.n)
    events = inference.chat(context_of(request), to_chat(body), num_choices=choices.n)
    head = Head.new("chatcmpl", "chat.completion.chunk" if body.stream else "chat.completion", body.model)
    framing = ChatFraming(head, choices, include_usage=body.stream_options.include_usage)
    return EventResponse(events, framing, stream=body.stream)


class ChatFraming(SseFraming):
    """Chat completion objects and chunks."""

    def __init__(self, head: Head, choices: Choices, *, include_usage: bool) -> None:
        super().__init__(head, choices, include_usage=include_usage)
        self._begun: set[int] = set()  # choices

    def frame(self, event: Event) -> bytes:
        if isinstance(event, Finish):
            return self._finish(event)
        assert isinstance(event, Delta), "rendered prompts are not asked for here"
        logprobs = choice_logprobs(event.logprobs)
        if event.thinking and event.content:
            thought = self._chunk(event.index, Message(reasoning=event.thinking))
            thought.logprobs = logprobs
            content = self._chunk(event.index, Message(content=event.content))
            return self._encode(thought) + self._encode(content)
        chunk = self._chunk(event.index, Message(content=event.content, reasoning=event.thinking))
        chunk.logprobs = logprobs
        return self._encode(chunk)

    def body(self, events: list[Event]) -> bytes:
        replies = collect(events)
        choices = [
            ChatChoice(
                index=index,
                message=Message(role="assistant", content=reply.content, reasoning=reply.thinking),
                finish_reason=reply.finish.reason,
                logprobs=choice_logprobs(reply.logprobs),
            )
            for index, reply in enumerate(replies)
        ]
        return self._head.encode(choices, self._choices.usage([reply.finish for reply in replies]))

    def _finish(self, event: Finish) -> bytes:
        self._finishes.append(event)
        index = event.index
        begin = b"" if index in self._begun else self._encode(self._chunk(index, Message(content="")))
        return begin + self._encode(ChatChoice(index=index, delta=Message(), finish_reason=event.reason))

    def _chunk(self, index: int, delta: Message) -> ChatChoice:
        """The first one of a choice says whose message it is."""
        if index not in self._begun:
            self._begun.add(index)
            delta.role = "assistant"
        return ChatChoice(index=index, delta=delta, finish_reason=None)

    def _encode(self, choice: ChatChoice) -> bytes:
        return sse(self._head.encode([choice]))
