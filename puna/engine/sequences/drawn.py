"""The result of a step: each sequence's next tokens, their text, and whether it ends there."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Literal, TypeAlias

from puna._native import SampleResult, TokenTable, add_tokens
from puna.engine.request import TokenLogprob
from puna.engine.sequences.batch import Slice

Advance: TypeAlias = tuple[list[int], int, Literal["stop", "length"] | None, str, list[int]]
"""By what a sequence gets on: the tokens that belong to it; how many were drawn, a stop token included; why
it ends with them, if it does; what may be shown now; the tokens whose text begins in that. A plain tuple,
since there is one for each stream and step.
"""


def advances(slices: Items[Slice], result: SampleResult) -> list[Advance]:
    """For each of the slices, which complete their sequences; those in result.errors got nothing."""
    if not slices:
        return []
    streams = [s.sequence.text for s in slices]
    num_left = [s.sequence.end - s.sequence.num_tokens for s in slices]
    return add_tokens(streams, result.tokens, result.starts, num_left)


def logprobs_of(
    slices: Items[Slice], result: SampleResult, table: TokenTable | None
) -> dict[Slice, list[TokenLogprob]]:
    """One per drawn token, for the slices that want them. table: of the model's tokens."""
    if not any(s.sequence.with_logprobs for s in slices):
        return {}
    drawn, starts = _logprobs(result, table), result.starts.tolist()
    return {
        s: drawn[starts[index] : starts[index + 1]]
        for index, s in enumerate(slices)
        if s.sequence.with_logprobs
    }


def _logprobs(result: SampleResult, table: TokenTable | None) -> list[TokenLogprob]:
    def bytes_of(token: int) -> bytes:
        return b"" if table is None else table.token_bytes(token)

    rows = zip(result.tokens.tolist(), result.logprobs.tolist(), result.top_tokens, strict=True)
    return [
        TokenLogprob(token, logprob, bytes_of(token), [TokenLogprob(t, p, bytes_of(t)) for t, p in top])
        for token, logprob, top in rows
    ]
