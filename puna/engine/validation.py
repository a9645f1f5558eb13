"""Refuses what would fail later, in a step that other requests take part in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from puna._native import TokenTable
from puna.backends.base import ModelInfo
from puna.engine.grammars.compiling import ModelGrammars
from puna.engine.grammars.limits import MAX_GRAMMAR_CHARS
from puna.engine.request import Request, SamplingParams
from puna.kv.files.session_manifest import InvalidSessionName, check_session_name

MAX_PRIORITY = 1000
MAX_STOP_BYTES = 1 << 16
"""Of all stop strings together."""
_INT64 = range(-(2**63), 2**63)


class InvalidRequest(ValueError):
    """A request that cannot be run; the text says why."""


def prompt_array(prompt: list[int], vocab_size: int) -> NDArray[np.int32]:
    """Raises InvalidRequest for one that is empty, or has a token that there is not."""
    if not prompt:
        raise InvalidRequest("the prompt is empty")
    if min(prompt) < 0 or max(prompt) >= vocab_size:
        raise InvalidRequest(f"the prompt has a token outside of the vocabulary of {vocab_size}")
    return np.array(prompt, dtype=np.int32)


def check_request(request: Request, info: ModelInfo) -> None:
    """All but its prompt. Raises InvalidRequest."""
    if request.images:
        raise InvalidRequest("images are only shown by llama.cpp's server")
    if request.pooling is not None and not info.hidden_size:
        raise InvalidRequest("the model has no hidden states to make an embedding of")
    if info.is_encoder and request.pooling is None:
        raise InvalidRequest(
            "the model is an encoder: it makes embeddings, or ranks texts, and does not reply"
        )
    if request.pooling is not None and request.pooling != info.pooling:
        if info.pooling == "rank":
            raise InvalidRequest("the model ranks texts, and has no embeddings")
        if info.is_encoder or request.pooling == "rank":
            raise InvalidRequest(f"the model's embeddings are of type {info.pooling!r}")
    if request.pooling is not None and request.grammar:
        raise InvalidRequest("an embedding is no reply that a grammar could hold")
    if request.boundaries and any(a > b for a, b in pairwise([0, *request.boundaries, len(request.prompt)])):
        raise InvalidRequest("boundaries are not ascending positions in the prompt")
    if request.max_tokens is not None and request.max_tokens < 0:
        raise InvalidRequest(f"max_tokens is {request.max_tokens}")
    if request.num_draft is not None and request.num_draft < 0:
        raise InvalidRequest(f"num_draft is {request.num_draft}")
    if not -MAX_PRIORITY <= request.priority <= MAX_PRIORITY:
        raise InvalidRequest(f"priority is {request.priority}, not within -{MAX_PRIORITY} and {MAX_PRIORITY}")
    if request.num_threads is not None and not 1 <= request.num_threads < 2**31:
        raise InvalidRequest(f"num_threads is {request.num_threads}")
    if request.shown_tokens and any(not 0 <= token < info.vocab_size for token in request.shown_tokens):
        raise InvalidRequest(f"shown_tokens has one outside of the vocabulary of {info.vocab_size}")
    if request.session is not None:
        try:
            check_session_name(request.session)
        except InvalidSessionName as error:
            raise InvalidRequest(str(error)) from error
    if request.pooling is None:
        _check_sampling(request.sampling, info.vocab_size)


def check_stop(stop: list[str], table: TokenTable | None) -> None:
    """Raises InvalidRequest. table: of the model's tokens."""
    if not stop:
        return
    if table is None:
        raise InvalidRequest("stop strings need a model whose vocabulary the engine knows")
    try:
        num_bytes = sum(len(string.encode()) for string in stop)
    except UnicodeEncodeError as error:
        raise InvalidRequest("a stop string has half of a surrogate pair") from error
    if num_bytes > MAX_STOP_BYTES:
        raise InvalidRequest(f"the stop strings have {num_bytes} bytes, more than {MAX_STOP_BYTES}")


def check_grammar(grammar: str, grammars: ModelGrammars | None) -> None:
    """What can be said without compiling it. Raises InvalidRequest. grammars: of the model."""
    if grammars is None:
        raise InvalidRequest("a grammar needs a model whose vocabulary the engine knows")
    if len(grammar) > MAX_GRAMMAR_CHARS:
        raise InvalidRequest(f"the grammar has {len(grammar)} characters, more than {MAX_GRAMMAR_CHARS}")


def check_draft_model(draft: ModelInfo, info: ModelInfo) -> None:
    """Raises InvalidRequest."""
    if draft.state_bytes:
        raise InvalidRequest("the draft model has recurrent layers, which cannot take back what they drafted")
    if draft.vocab_size != info.vocab_size:
        raise InvalidRequest(
            f"the draft model's vocabulary has {draft.vocab_size} tokens, the model's {info.vocab_size}"
        )


def _check_sampling(params: SamplingParams, vocab_size: int) -> None:
    """What the sampler cannot check itself: it knows neither the vocabulary nor Python's integers."""
    for name in ("top_k", "repeat_last_n", "num_logprobs"):
        if (value := getattr(params, name)) not in _INT64:
            raise InvalidRequest(f"{name} is {value}")
    for token in params.logit_bias:
        if not 0 <= token < vocab_size:
            raise InvalidRequest(f"logit_bias has token {token}, outside of the vocabulary of {vocab_size}")
