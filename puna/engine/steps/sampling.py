"""What a step drew, sequence by sequence."""

from __future__ import annotations

from collections.abc import Sequence as Items
from itertools import pairwise
from typing import NamedTuple

from puna._native import SampleResult, TokenTable
from puna.engine.request import TokenLogprob
from puna.engine.steps.batch import Slice


class Drawn(NamedTuple):
    """What a sequence got: the drafts that were right, and one token more."""

    tokens: list[int]
    logprobs: list[TokenLogprob]
    """One per token, if its request asked for them."""
    error: str | None = None
    """Why it got nothing."""


def drawn_of(result: SampleResult, slices: Items[Slice], table: TokenTable | None) -> list[Drawn]:
    """For each of the slices, which complete their sequences. table: of the model's tokens.

    Logits that nothing can be drawn from are the error of their sequence alone.
    """
    if not slices:
        return []
    tokens = result.tokens.tolist()
    logprobs = _logprobs(result, table) if any(s.sequence.with_logprobs for s in slices) else []
    errors = result.errors
    return [
        Drawn(tokens[start:end], logprobs[start:end] if s.sequence.with_logprobs else [], errors.get(index))
        for index, (s, (start, end)) in enumerate(zip(slices, pairwise(result.starts.tolist()), strict=True))
    ]


def _logprobs(result: SampleResult, table: TokenTable | None) -> list[TokenLogprob]:
    def bytes_of(token: int) -> bytes:
        return b"" if table is None else table.token_bytes(token)

    rows = zip(result.tokens.tolist(), result.logprobs.tolist(), result.top_tokens, strict=True)
    return [
        TokenLogprob(token, logprob, bytes_of(token), [TokenLogprob(t, p, bytes_of(t)) for t, p in top])
        for token, logprob, top in rows
    ]
