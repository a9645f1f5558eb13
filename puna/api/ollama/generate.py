"""POST /api/generate and /api/chat."""

from __future__ import annotations

import msgspec
from starlette.requests import Request

from puna.api import inference
from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.ollama.reply import ReplyFraming
from puna.api.replying.events import Event
from puna.api.replying.streaming import EventResponse
from puna.api.requests import ChatRequest, GenerateRequest
from puna.chat.images import with_image_places
from puna.chat.messages import Message


async def generate(request: Request) -> EventResponse[Event]:
    """Continues a prompt."""
    body = await read_body(request, GenerateRequest)
    if body.images and not body.raw:
        body.prompt, body.images = with_image_places(body.prompt, body.images)
    events = inference.generate(context_of(request), body)
    return EventResponse(events, ReplyFraming(body.model, chat=False), stream=body.stream)


async def chat(request: Request) -> EventResponse[Event]:
    """Continues a conversation."""
    body = await read_body(request, ChatRequest)
    body.messages = [_placed(message) for message in body.messages]
    events = inference.chat(context_of(request), body)
    return EventResponse(events, ReplyFraming(body.model, chat=True), stream=body.stream)


def _placed(message: Message) -> Message:
    if not message.images:
        return message
    content, images = with_image_places(message.content, message.images)
    return msgspec.structs.replace(message, content=content, images=images)
