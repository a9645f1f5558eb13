"""Anthropic's API."""

from __future__ import annotations

from puna.api.anthropic import messages
from puna.api.anthropic.errors import AnthropicError, anthropic_error_reply
from puna.api.anthropic.objects import CountedTokens, ReplyMessage
from puna.api.anthropic.schema import MessagesRequest, PromptFields
from puna.api.faces import Face
from puna.api.openapi.operation import EVENTS, of_model

ANTHROPIC = Face("Anthropic", "/v1/messages", anthropic_error_reply, AnthropicError)

ANTHROPIC_ROUTES = [
    ANTHROPIC.post(
        "/v1/messages", messages.create_message, of_model(MessagesRequest, ReplyMessage, streams=EVENTS)
    ),
    ANTHROPIC.post("/v1/messages/count_tokens", messages.count_tokens, of_model(PromptFields, CountedTokens)),
]
