"""Ollama's API, and what belongs to no protocol."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import puna
from puna.api.faces import Face
from puna.api.observability import routes as observability
from puna.api.ollama import blobs, cloud, create, embed, generate, listing, manage, pull, push, show
from puna.api.ollama.additions import kv, local, sessions, tokens
from puna.api.ollama.errors import OllamaError, ollama_error_reply
from puna.api.ollama.reply import ChatReply, GenerateReply
from puna.api.openapi import routes as openapi
from puna.api.openapi.operation import NDJSON, OF_MODELS, Operation, of_model
from puna.api.pooled.embedding import EmbedRequest
from puna.api.replying.replies import json_response
from puna.api.requests import ChatRequest, GenerateRequest
from puna.registry.progress import Progress

_OLLAMA_LEVEL = "0.22.0"
"""The version of Ollama whose API this is: many clients refuse older ones."""

OLLAMA = Face("Ollama", "", ollama_error_reply, OllamaError, has_plain_404=True)
NOBODY = Operation(success=(), errors=(401,))
BLOB = Operation(raw_body=True, success=(200, 201), errors=(400, 507))


def of_session(reply: Any = None) -> Operation:
    """A conversation that is kept."""
    return Operation(body=sessions.SessionRequest, reply=reply, errors=(*OF_MODELS, 409))


async def _root(_: Request) -> Response:
    """Whether it runs."""
    return PlainTextResponse("Ollama is running")  # what clients look for


async def _version(_: Request) -> Response:
    """Of Ollama, whose API this is, and of puna."""
    return json_response({"version": _OLLAMA_LEVEL, "puna": puna.__version__})


async def _health(_: Request) -> Response:
    """Whether it runs, as llama.cpp's server says it."""
    return json_response({"status": "ok"})


OLLAMA_ROUTES = [
    OLLAMA.get("/", _root, media="text/plain"),
    OLLAMA.get("/health", _health, dict[str, str]),
    OLLAMA.get("/metrics", observability.metrics, media="text/plain"),
    OLLAMA.get(
        "/debug/trace", observability.trace, Any, query={"seconds": {"type": "number"}}, errors=(400,)
    ),
    OLLAMA.get("/openapi.json", openapi.document, Any),
    OLLAMA.get("/docs", openapi.page, media="text/html"),
    OLLAMA.get("/api/version", _version, dict[str, str]),
    OLLAMA.get("/api/tags", listing.tags, dict[str, list[listing.ListedModel]]),
    OLLAMA.get("/api/ps", listing.ps, dict[str, list[Any]]),
    OLLAMA.post("/api/show", show.show, of_model(show.ShowRequest, dict[str, Any])),
    OLLAMA.post("/api/generate", generate.generate, of_model(GenerateRequest, GenerateReply, streams=NDJSON)),
    OLLAMA.post("/api/chat", generate.chat, of_model(ChatRequest, ChatReply, streams=NDJSON)),
    OLLAMA.post("/api/embed", embed.embed, of_model(EmbedRequest, embed.EmbedBody)),
    OLLAMA.post(
        "/api/embeddings", embed.embeddings, of_model(embed.OneEmbeddingRequest, embed.OneEmbeddingBody)
    ),
    OLLAMA.post("/api/pull", pull.pull, of_model(pull.PullRequest, Progress, streams=NDJSON)),
    OLLAMA.post("/api/push", push.push, of_model(push.PushRequest, Progress, streams=NDJSON)),
    OLLAMA.post("/api/create", create.create, of_model(create.CreateRequest, Progress, streams=NDJSON)),
    OLLAMA.post("/api/copy", manage.copy, of_model(manage.CopyRequest)),
    OLLAMA.route("DELETE", "/api/delete", manage.delete, of_model(manage.DeleteRequest)),
    OLLAMA.route("HEAD", "/api/blobs/{digest}", blobs.probe, Operation(errors=OF_MODELS)),
    OLLAMA.post("/api/blobs/{digest}", blobs.upload, BLOB),
    OLLAMA.get("/api/status", cloud.status, Any),
    OLLAMA.post("/api/me", cloud.me, NOBODY),
    OLLAMA.post("/api/signout", cloud.sign_out, NOBODY),
    OLLAMA.route("DELETE", "/api/user/keys/{key}", cloud.sign_out, NOBODY),
    OLLAMA.post("/api/experimental/web_search", cloud.web_search, NOBODY),
    OLLAMA.post("/api/experimental/web_fetch", cloud.web_fetch, NOBODY),
    OLLAMA.get("/api/experimental/model-recommendations", cloud.recommendations, Any),
]
"""Ollama's own."""

ADDED_ROUTES = [
    OLLAMA.post("/api/tokenize", tokens.tokenize, of_model(tokens.TokenizeRequest, tokens.TokenizeReply)),
    OLLAMA.post(
        "/api/detokenize", tokens.detokenize, of_model(tokens.DetokenizeRequest, tokens.DetokenizeReply)
    ),
    OLLAMA.get("/api/local", local.list_local, dict[str, list[local.ListedLocalModel]]),
    OLLAMA.get("/api/sessions", sessions.list_sessions, dict[str, list[sessions.ListedSession]]),
    OLLAMA.route("DELETE", "/api/sessions", sessions.remove, of_session()),
    OLLAMA.post("/api/sessions/save", sessions.save, of_session(sessions.ListedSession)),
    OLLAMA.post("/api/sessions/load", sessions.load, of_session(sessions.ListedSession)),
    OLLAMA.get("/api/kv", kv.show, kv.Memory),
    OLLAMA.post("/api/kv/limit", kv.limit, Operation(body=kv.LimitRequest, reply=kv.Limits)),
    OLLAMA.post("/api/kv/trim", kv.trim, Operation(reply=dict[str, int])),
]
"""For what Ollama does not have."""
