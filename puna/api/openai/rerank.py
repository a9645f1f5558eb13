"""POST /v1/rerank, as Jina and Cohere have it, and /rerank, as llama.cpp's server does."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.requests import Request

from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.errors import ApiError
from puna.api.openai.embeddings import EmbeddingsUsage
from puna.api.openai.errors import openai_error_body
from puna.api.pooled.ranking import Ranking, RankRequest, rank
from puna.api.replying.streaming import WholeResponse
from puna.api.requests import Extensions, extensions_of

_MOST_DOCUMENTS = 16_384


class RerankRequest(Extensions, kw_only=True):
    """The body."""

    model: str = ""
    query: Any = None
    documents: Any = None
    """Texts, or objects with a `text`."""
    top_n: int | None = None
    """How many come back; all, if it is missing or more than there are."""
    return_documents: bool = False

    def check(self) -> None:
        """ApiError (400)."""
        if self.query is None:
            raise ApiError(400, '"query" must be provided')
        if not isinstance(self.query, str):
            raise ApiError(400, '"query" must be a string')
        if not self.texts():
            raise ApiError(400, '"documents" must be a non-empty string array')
        if len(self.texts()) > _MOST_DOCUMENTS:
            raise ApiError(400, f'"documents" may be {_MOST_DOCUMENTS} at most')
        if self.top_n is not None and self.top_n < 1:
            raise ApiError(400, '"top_n" must be at least 1')

    def texts(self) -> list[str]:
        """None where documents are anything else."""
        given = self.documents if isinstance(self.documents, list) else []
        texts = [item.get("text") if isinstance(item, dict) else item for item in given]
        as_texts = [text for text in texts if isinstance(text, str)]
        return as_texts if len(as_texts) == len(texts) else []


class DocumentObject(msgspec.Struct):
    """As it was given."""

    text: str


class RerankResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A document's place among those of the request, and how relevant it is."""

    index: int
    relevance_score: float
    document: DocumentObject | msgspec.UnsetType = msgspec.UNSET


class RerankReply(msgspec.Struct, kw_only=True):
    """The reply; the most relevant document first."""

    object: Literal["list"] = "list"
    model: str
    usage: EmbeddingsUsage
    results: list[RerankResult]


async def rerank(request: Request) -> WholeResponse:
    """Scores from 0 to 1."""
    return await _rerank(request, as_probability=True)


async def rerank_by_logits(request: Request) -> WholeResponse:
    """Scores as the model gives them."""
    return await _rerank(request, as_probability=False)


async def _rerank(request: Request, *, as_probability: bool) -> WholeResponse:
    body, context = await read_body(request, RerankRequest, empty="EOF"), context_of(request)
    body.check()
    wanted = RankRequest(model=body.model, query=body.query, documents=body.texts(), **extensions_of(body))

    async def reply() -> bytes:
        return _encoded(body, await rank(context, wanted, as_probability=as_probability))

    return WholeResponse(reply(), openai_error_body)


def _encoded(request: RerankRequest, ranking: Ranking) -> bytes:
    results = [RerankResult(index=index, relevance_score=score) for index, score in enumerate(ranking.scores)]
    results.sort(key=lambda result: -result.relevance_score)
    results = results[: request.top_n]
    if request.return_documents:
        texts = request.texts()
        for result in results:
            result.document = DocumentObject(texts[result.index])
    usage = EmbeddingsUsage(ranking.num_tokens, ranking.num_tokens)
    return msgspec.json.encode(RerankReply(model=request.model, usage=usage, results=results))
