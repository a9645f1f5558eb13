"""Ollama's API, and what belongs to no protocol."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import puna
from puna.api.faces import Face
from puna.api.observability import routes as observability
from puna.api.ollama import blobs, cloud, create, embed, generate, listing, manage, pull, show
from puna.api.ollama.additions import kv, sessions, tokens
from puna.api.ollama.errors import ollama_error_reply
from puna.api.replies import json_response

_OLLAMA_LEVEL = "0.22.0"
"""The version of Ollama whose API this is: many clients refuse older ones."""

OLLAMA = Face("", ollama_error_reply, has_plain_404=True)


async def _root(_: Request) -> Response:
    return PlainTextResponse("Ollama is running")  # what clients look for


async def _version(_: Request) -> Response:
    return json_response({"version": _OLLAMA_LEVEL, "puna": puna.__version__})


async def _health(_: Request) -> Response:
    return json_response({"status": "ok"})


OLLAMA_ROUTES = [
    OLLAMA.route("/", _root),
    OLLAMA.route("/metrics", observability.metrics),
    OLLAMA.route("/debug/trace", observability.trace),
    OLLAMA.route("/api/version", _version),
    OLLAMA.route("/health", _health),
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
    OLLAMA.route("/api/tokenize", tokens.tokenize, ["POST"]),
    OLLAMA.route("/api/detokenize", tokens.detokenize, ["POST"]),
    OLLAMA.route("/api/status", cloud.status),
    OLLAMA.route("/api/me", cloud.me, ["POST"]),
    OLLAMA.route("/api/signout", cloud.sign_out, ["POST"]),
    OLLAMA.route("/api/user/keys/{key}", cloud.sign_out, ["DELETE"]),
    OLLAMA.route("/api/experimental/web_search", cloud.web_search, ["POST"]),
    OLLAMA.route("/api/experimental/web_fetch", cloud.web_fetch, ["POST"]),
    OLLAMA.route("/api/experimental/model-recommendations", cloud.recommendations),
    OLLAMA.route("/api/kv", kv.show),
    OLLAMA.route("/api/kv/limit", kv.limit, ["POST"]),
    OLLAMA.route("/api/kv/trim", kv.trim, ["POST"]),
]
