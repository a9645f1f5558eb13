"""OpenAI's API."""

from __future__ import annotations

from puna.api.faces import Face
from puna.api.openai import missing, models
from puna.api.openai.chat.endpoint import chat_completions
from puna.api.openai.completions.endpoint import completions
from puna.api.openai.embeddings import embeddings
from puna.api.openai.errors import openai_error_reply
from puna.api.openai.responses.endpoint import responses

OPENAI = Face("/v1/", openai_error_reply)

OPENAI_ROUTES = [
    OPENAI.route("/v1/models", models.list_models),
    OPENAI.route("/v1/models/{model:path}", models.retrieve_model),
    OPENAI.route("/v1/chat/completions", chat_completions, ["POST"]),
    OPENAI.route("/v1/responses", responses, ["POST"]),
    OPENAI.route("/v1/completions", completions, ["POST"]),
    OPENAI.route("/v1/embeddings", embeddings, ["POST"]),
    OPENAI.route("/v1/audio/{kind}", missing.audio, ["POST"]),
    OPENAI.route("/v1/images/{kind}", missing.images, ["POST"]),
]
