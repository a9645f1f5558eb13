"""Ollama's API, and what belongs to no protocol."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import puna
from puna.api.faces import Face
from puna.api.observability import routes as observability
from puna.api.ollama import blobs, create, embed, generate, kv, listing, manage, pull, sessions, show
from puna.api.ollama.errors import ollama_error_reply
from puna.api.replies import json_response

OLLAMA = Face("", ollama_error_reply, has_plain_404=True)


async def _root(_: Request) -> Response:
    return PlainTextResponse("Ollama is running")  # what clients look for


async def _version(_: Request) -> Response:
    return json_response({"version": puna.__version__})


OLLAMA_ROUTES = [
    OLLAMA.route("/", _root),
    OLLAMA.route("/metrics", observability.metrics),
    OLLAMA.route("/debug/trace", observability.trace),
    OLLAMA.route("/api/version", _version),
    OLLAMA.route("/api/tags", listing.tags),
    OLLAMA.route("/api/ps", listing.ps),
    OLLAMA.route("/api/show", show.show, ["POST"]),
    OLLAMA.route("/api/generate", generate.generate, ["POST"]),
    OLLAMA.route("/api/chat", generate.chat, ["POST"]),
    OLLAMA.route("/api/embed", embed.embed, ["POST"]),
    OLLAMA.route("/api/embeddings", embed.embeddings, ["POST"]),
    OLLAMA.route("/api/pull", pull.pull, ["POST"]),
    OLLAMA.route("/api/create", create.create, ["POST"]),
    OLLAMA.route("/api/copy", manage.copy, ["POST"]),
    OLLAMA.route("/api/delete", manage.delete, ["DELETE"]),
    OLLAMA.route("/api/blobs/{digest}", blobs.probe, ["HEAD"]),
    OLLAMA.route("/api/blobs/{digest}", blobs.upload, ["POST"]),
    OLLAMA.route("/api/sessions", sessions.list_sessions),
    OLLAMA.route("/api/sessions", sessions.remove, ["DELETE"]),
    OLLAMA.route("/api/sessions/save", sessions.save, ["POST"]),
    OLLAMA.route("/api/sessions/load", sessions.load, ["POST"]),
    OLLAMA.route("/api/kv", kv.show),
    OLLAMA.route("/api/kv/limit", kv.limit, ["POST"]),
    OLLAMA.route("/api/kv/trim", kv.trim, ["POST"]),
]
