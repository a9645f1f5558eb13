"""Anthropic's API."""

from __future__ import annotations

from puna.api.anthropic import messages
from puna.api.anthropic.errors import anthropic_error_reply
from puna.api.faces import Face

ANTHROPIC = Face("/v1/messages", anthropic_error_reply)

ANTHROPIC_ROUTES = [
    ANTHROPIC.route("/v1/messages", messages.create_message, ["POST"]),
    ANTHROPIC.route("/v1/messages/count_tokens", messages.count_tokens, ["POST"]),
]
