"""From a step's logits to each sequence's next tokens."""

from __future__ import annotations

from collections.abc import Sequence as Items
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puna._native import SampleResult, ThreadPool, TokenTable, sample_batch
from puna.engine.request import TokenLogprob
from puna.engine.steps.batch import Slice


class Drawn(NamedTuple):
    """What a sequence got: the drafts that were right, and one token more."""

    tokens: list[int]
    logprobs: list[TokenLogprob]
    """One per token, if its request asked for them."""
    error: str | None = None
    """Why it got nothing."""


def sample(
    pool: ThreadPool, logits: NDArray[np.float32], slices: Items[Slice], table: TokenTable | None
) -> list[Drawn]:
    """For each of the slices, which complete their sequences. logits: of the rows of their parts.

    table: of the model's tokens. Logits that nothing can be drawn from are the error of their sequence alone.
    """
    if not slices:
        return []
    result = sample_batch(pool, logits, [s.sequence.sampler for s in slices], *_drafts(slices))
    tokens = result.tokens.tolist()
    logprobs = _logprobs(result, table) if any(s.sequence.with_logprobs for s in slices) else []
    errors = result.errors
    return [
        Drawn(tokens[start:end], logprobs[start:end] if s.sequence.with_logprobs else [], errors.get(index))
        for index, (s, (start, end)) in enumerate(zip(slices, pairwise(result.starts.tolist()), strict=True))
    ]


def _drafts(slices: Items[Slice]) -> tuple[NDArray[np.int32], NDArray[np.int32]] | tuple[()]:
    if not any(s.drafts for s in slices):
        return ()
    drafts = np.array([token for s in slices for token in s.drafts], dtype=np.int32)
    return drafts, np.array([0, *accumulate(len(s.drafts) for s in slices)], dtype=np.int32)


def _logprobs(result: SampleResult, table: TokenTable | None) -> list[TokenLogprob]:
    def bytes_of(token: int) -> bytes:
        return b"" if table is None else table.token_bytes(token)

    rows = zip(result.tokens.tolist(), result.logprobs.tolist(), result.top_tokens, strict=True)
    return [
        TokenLogprob(token, logprob, bytes_of(token), [TokenLogprob(t, p, bytes_of(t)) for t, p in top])
        for token, logprob, top in rows
    ]
