"""POST /v1/responses. Nothing is stored: each request has the whole conversation."""

from __future__ import annotations

from starlette.requests import Request

from puna.api import inference
from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.openai.responses.framing import ResponseFraming
from puna.api.openai.responses.objects import new_response
from puna.api.openai.responses.schema import ResponsesRequest
from puna.api.openai.responses.tools import OfferedTools
from puna.api.openai.responses.translate import to_chat
from puna.api.replying.events import Event
from puna.api.replying.streaming import EventResponse


async def responses(request: Request) -> EventResponse[Event]:
    """Continues a conversation. Effort is asked of every model, so one that has no thoughts does without."""
    body = await read_body(request, ResponsesRequest, empty="EOF")
    offered = OfferedTools(body.tools)
    events = inference.chat(context_of(request), to_chat(body, offered), must_think=False)
    return EventResponse(events, ResponseFraming(new_response(body), offered), stream=body.stream)
