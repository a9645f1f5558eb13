"""The way of documents to how well they answer a query, for every protocol."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from typing import NamedTuple

from puna.api.checks import check_extensions
from puna.api.context import ApiContext
from puna.api.errors import ApiError
from puna.api.names import find_model, missing_model
from puna.api.options import parse_options
from puna.api.pooled.prompts import PooledPrompts, Vector, in_parts
from puna.api.requests import ModelRequest
from puna.chat.ranking_inputs import PairsRequest
from puna.daemon.runtime import ResidentModel
from puna.daemon.text.pool import TextPool


class RankRequest(ModelRequest, kw_only=True):
    """Documents to be ranked."""

    query: str
    documents: list[str]


class Ranking(NamedTuple):
    """Scores in the order of the documents."""

    scores: list[float]
    num_tokens: int
    """Of all documents, with the query and what the model wants around them."""


async def rank(context: ApiContext, request: RankRequest, *, as_probability: bool) -> Ranking:
    """Cancelling it cancels what is computed.

    as_probability: scores that the model gives as logits become numbers from 0 to 1.
    Raises what puna.api.errors has a status for.
    """
    keep_alive_s = request.keep_alive_s()
    check_extensions(request, len(request.documents))
    if request.session is not None:
        raise ApiError(400, "rankings belong to no session")
    model = await find_model(context.runtime.store, request.model, missing=missing_model(request.model))
    options = parse_options(model.params, request.options)

    def finish(scores: Vector) -> float:
        return _score(scores, as_probability=as_probability)

    async with context.runtime.resident(model, num_ctx=options.num_ctx, keep_alive=keep_alive_s) as resident:
        if resident.info.pooling != "rank":
            raise ApiError(400, f'"{request.model}" does not support reranking')
        prompts = PooledPrompts(context.runtime, request, resident, options, finish)
        scores = await prompts.compute(_pairs(context.runtime.text, request, resident), "rank")
    return Ranking(scores, prompts.num_tokens)


async def _pairs(
    pool: TextPool, request: RankRequest, resident: ResidentModel
) -> AsyncGenerator[list[list[int]], None]:
    """Raises PromptError, WorkerDied."""
    for part in in_parts(request.documents, each=len(request.query)):
        pairs = PairsRequest(query=request.query, documents=part, context_length=resident.context_length)
        yield await pool.encode_pairs(resident.text, pairs)


def _score(scores: Vector, *, as_probability: bool) -> float:
    """A single score is a logit; of several, the first is for "yes", and a probability already.

    ApiError (400) where it is no number.
    """
    score = scores[0] if scores else math.nan
    if not math.isfinite(score):
        raise ApiError(400, "a score is NaN or Inf")
    if not as_probability or len(scores) > 1:
        return score
    if score > 0:
        return 1 / (1 + math.exp(-score))
    odds = math.exp(score)
    return odds / (1 + odds)
