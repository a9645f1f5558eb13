"""From a step's logits to each sequence's next tokens."""

from __future__ import annotations

from collections.abc import Sequence as Items
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puna._native import SampleResult, ThreadPool, sample_batch
from puna.engine.batch import Slice
from puna.engine.request import TokenLogprob


class Drawn(NamedTuple):
    """What a sequence got: the drafts that were right, and one token more."""

    tokens: list[int]
    logprobs: list[TokenLogprob] | None
    """One per token, if its request asked for them."""


def sample(pool: ThreadPool, logits: NDArray[np.float32], slices: Items[Slice]) -> list[Drawn]:
    """For each slice that completes its sequence, in their order. logits: of the rows of build_batch(slices).

    Raises NativeError for logits that nothing can be drawn from; then nothing was.
    """
    complete = [s for s in slices if s.completes]
    if not complete:
        return []
    result = sample_batch(pool, logits, [s.sequence.sampler for s in complete], *_drafts(complete))
    tokens = result.tokens.tolist()
    logprobs = _logprobs(result) if any(s.sequence.with_logprobs for s in complete) else []
    return [
        Drawn(tokens[start:end], logprobs[start:end] if s.sequence.with_logprobs else None)
        for s, (start, end) in zip(complete, pairwise(result.starts.tolist()), strict=True)
    ]


def _drafts(slices: Items[Slice]) -> tuple[NDArray[np.int32], NDArray[np.int32]] | tuple[()]:
    if not any(s.drafts for s in slices):
        return ()
    drafts = np.array([token for s in slices for token in s.drafts], dtype=np.int32)
    return drafts, np.array([0, *accumulate(len(s.drafts) for s in slices)], dtype=np.int32)


def _logprobs(result: SampleResult) -> list[TokenLogprob]:
    rows = zip(result.tokens.tolist(), result.logprobs.tolist(), result.top_tokens, strict=True)
    return [TokenLogprob(token, logprob, top) for token, logprob, top in rows]
