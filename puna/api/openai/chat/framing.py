"""Chat completion objects and chunks."""

from __future__ import annotations

from collections.abc import Sequence

from puna.api.openai.choices import Choices
from puna.api.openai.framing import SseFraming, sse
from puna.api.openai.objects import (
    ChatChoice,
    Head,
    Message,
    call_objects,
    called_function,
    choice_logprobs,
)
from puna.api.replying.events import Collected, Delta, Event, Finish, collect
from puna.chat.messages import ToolCall


class ChatFraming(SseFraming):
    """uses_functions: calls are written as OpenAI's first API of functions has them, which knows only one."""

    def __init__(self, head: Head, choices: Choices, *, include_usage: bool, uses_functions: bool) -> None:
        super().__init__(head, choices, include_usage=include_usage)
        self._uses_functions = uses_functions
        self._begun: set[int] = set()  # choices
        self._calling: set[int] = set()  # choices

    def frame(self, event: Event) -> bytes:
        if isinstance(event, Finish):
            return self._finish(event)
        assert isinstance(event, Delta), "rendered prompts are not asked for here"
        if event.tool_calls:
            self._calling.add(event.index)
        logprobs = choice_logprobs(event.logprobs)
        if event.thinking and (event.content or event.tool_calls):
            thought = self._chunk(event.index, Message(reasoning=event.thinking))
            thought.logprobs = logprobs
            behind = self._chunk(event.index, self._message(event.content, event.tool_calls))
            return self._encode(thought) + self._encode(behind)
        message = self._message(event.content, event.tool_calls)
        message.reasoning = event.thinking
        chunk = self._chunk(event.index, message)
        chunk.logprobs = logprobs
        return self._encode(chunk)

    def body(self, events: list[Event]) -> bytes:
        replies = collect(events)
        choices = [self._choice(index, reply) for index, reply in enumerate(replies)]
        return self._head.encode(choices, self._choices.usage([reply.finish for reply in replies]))

    def _choice(self, index: int, reply: Collected) -> ChatChoice:
        message = self._message(reply.content, reply.tool_calls)
        message.role = "assistant"
        message.reasoning = reply.thinking
        return ChatChoice(
            index=index,
            message=message,
            finish_reason=self._reason(reply.finish, calls=bool(reply.tool_calls)),
            logprobs=choice_logprobs(reply.logprobs),
        )

    def _finish(self, event: Finish) -> bytes:
        self._finishes.append(event)
        index = event.index
        begin = b"" if index in self._begun else self._encode(self._chunk(index, Message(content="")))
        reason = self._reason(event, calls=index in self._calling)
        return begin + self._encode(ChatChoice(index=index, delta=Message(), finish_reason=reason))

    def _reason(self, finish: Finish, *, calls: bool) -> str:
        if calls and finish.reason == "stop":
            return "function_call" if self._uses_functions else "tool_calls"
        return finish.reason

    def _message(self, content: str, calls: Sequence[ToolCall]) -> Message:
        if not calls:
            return Message(content=content)
        if self._uses_functions:
            return Message(content=content, function_call=called_function(calls[0]))
        return Message(content=content, tool_calls=call_objects(calls))

    def _chunk(self, index: int, delta: Message) -> ChatChoice:
        """The first one of a choice says whose message it is."""
        if index not in self._begun:
            self._begun.add(index)
            delta.role = "assistant"
        return ChatChoice(index=index, delta=delta, finish_reason=None)

    def _encode(self, choice: ChatChoice) -> bytes:
        return sse(self._head.encode([choice]))
