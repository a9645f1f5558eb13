"""OpenAI's API."""

from __future__ import annotations

from puna.api.faces import Face
from puna.api.openai import missing, models
from puna.api.openai.chat.endpoint import chat_completions
from puna.api.openai.chat.schema import ChatCompletionRequest
from puna.api.openai.completions.endpoint import completions
from puna.api.openai.completions.schema import CompletionRequest
from puna.api.openai.embeddings import EmbeddingList, EmbeddingsRequest, embeddings
from puna.api.openai.errors import OpenAIError, openai_error_reply
from puna.api.openai.objects import ChatChoice, Completion, TextChoice
from puna.api.openai.rerank import RerankReply, RerankRequest, rerank, rerank_by_logits
from puna.api.openai.responses.endpoint import responses
from puna.api.openai.responses.objects import ResponseObject
from puna.api.openai.responses.schema import ResponsesRequest
from puna.api.openapi.operation import EVENTS, OF_MODELS, Operation, of_model

OPENAI = Face("OpenAI", "/v1/", openai_error_reply, OpenAIError)

_MISSING = Operation(success=(), errors=(400,))

OPENAI_ROUTES = [
    OPENAI.get("/v1/models", models.list_models, models.ModelList),
    OPENAI.get("/v1/models/{model:path}", models.retrieve_model, models.ModelObject, errors=OF_MODELS),
    OPENAI.post(
        "/v1/chat/completions",
        chat_completions,
        of_model(ChatCompletionRequest, Completion[ChatChoice], streams=EVENTS),
    ),
    OPENAI.post("/v1/responses", responses, of_model(ResponsesRequest, ResponseObject, streams=EVENTS)),
    OPENAI.post(
        "/v1/completions", completions, of_model(CompletionRequest, Completion[TextChoice], streams=EVENTS)
    ),
    OPENAI.post("/v1/embeddings", embeddings, of_model(EmbeddingsRequest, EmbeddingList)),
    OPENAI.post("/v1/rerank", rerank, of_model(RerankRequest, RerankReply)),
    OPENAI.post("/v2/rerank", rerank, of_model(RerankRequest, RerankReply)),
    *(
        OPENAI.post(path, rerank_by_logits, of_model(RerankRequest, RerankReply))
        for path in ("/rerank", "/reranking", "/v1/reranking")
    ),
    OPENAI.post("/v1/audio/{kind}", missing.audio, _MISSING),
    OPENAI.post("/v1/images/{kind}", missing.images, _MISSING),
]
