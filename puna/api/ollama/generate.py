"""POST /api/generate and /api/chat."""

from __future__ import annotations

from starlette.requests import Request

from puna.api import inference
from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.ollama.reply import ReplyFraming
from puna.api.replying.events import Event
from puna.api.replying.streaming import EventResponse
from puna.api.requests import ChatRequest, GenerateRequest


async def generate(request: Request) -> EventResponse[Event]:
    """Continues a prompt."""
    body = await read_body(request, GenerateRequest)
    events = inference.generate(context_of(request), body)
    return EventResponse(events, ReplyFraming(body.model, chat=False), stream=body.stream)


async def chat(request: Request) -> EventResponse[Event]:
    """Continues a conversation."""
    body = await read_body(request, ChatRequest)
    events = inference.chat(context_of(request), body)
    return EventResponse(events, ReplyFraming(body.model, chat=True), stream=body.stream)
