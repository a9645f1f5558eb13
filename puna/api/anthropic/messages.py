"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from puna.api import inference
from puna.api.anthropic.errors import id_header
from puna.api.anthropic.framing import MessagesFraming
from puna.api.anthropic.objects import CountedTokens, new_id
from puna.api.anthropic.schema import MessagesRequest, PromptFields
from puna.api.anthropic.translate import to_chat, to_prompt
from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.replying.events import Event
from puna.api.replying.replies import JSON_MEDIA_TYPE
from puna.api.replying.streaming import EventResponse
from puna.api.replying.token_counts import count_chat_tokens


async def create_message(request: Request) -> EventResponse[Event]:
    """Continues a conversation."""
    body = await read_body(request, MessagesRequest, empty="EOF")
    events = inference.chat(context_of(request), to_chat(body), must_think=False)
    request_id = new_id("req")
    headers = {**id_header(request_id), "cache-control": "no-cache"}
    framing = MessagesFraming(body.model, request_id)
    return EventResponse(events, framing, stream=body.stream, headers=headers)


async def count_tokens(request: Request) -> Response:
    """How long the prompt would be; nothing is generated, and the model need not be loaded."""
    body = await read_body(request, PromptFields, empty="EOF")
    num_tokens = await count_chat_tokens(context_of(request), to_prompt(body))
    counted = msgspec.json.encode(CountedTokens(num_tokens))
    return Response(counted, headers=id_header(new_id("req")), media_type=JSON_MEDIA_TYPE)
