"""OpenAI's API."""

from __future__ import annotations

from puna.api.faces import Face
from puna.api.openai import chat, completions, models
from puna.api.openai.errors import openai_error_reply

OPENAI = Face("/v1/", openai_error_reply)

OPENAI_ROUTES = [
    OPENAI.route("/v1/models", models.list_models),
    OPENAI.route("/v1/models/{model}", models.retrieve_model),
    OPENAI.route("/v1/chat/completions", chat.chat_completions, ["POST"]),
    OPENAI.route("/v1/completions", completions.completions, ["POST"]),
]
