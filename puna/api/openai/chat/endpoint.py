"""POST /v1/chat/completions."""

from __future__ import annotations

from starlette.requests import Request

from puna.api import inference
from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.openai.chat.framing import ChatFraming
from puna.api.openai.chat.schema import ChatCompletionRequest
from puna.api.openai.chat.translate import to_chat
from puna.api.openai.choices import chat_choices
from puna.api.openai.objects import Head
from puna.api.replying.events import Event
from puna.api.replying.streaming import EventResponse


async def chat_completions(request: Request) -> EventResponse[Event]:
    """Continues a conversation."""
    body = await read_body(request, ChatCompletionRequest, empty="EOF")
    choices = chat_choices(body.n)
    events = inference.chat(context_of(request), to_chat(body), num_choices=choices.n)
    head = Head.new("chatcmpl", "chat.completion.chunk" if body.stream else "chat.completion", body.model)
    framing = ChatFraming(
        head,
        choices,
        include_usage=body.stream_options.include_usage,
        uses_functions=body.uses_functions,
    )
    return EventResponse(events, framing, stream=body.stream)
