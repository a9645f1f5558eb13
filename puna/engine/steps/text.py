"""From a step's tokens to each sequence's text, and whether it ends there."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import NamedTuple

from puna._native import add_tokens
from puna.engine.request import FinishReason, TokenLogprob
from puna.engine.steps.batch import Slice
from puna.engine.steps.sampling import Drawn


class Advance(NamedTuple):
    """By what a sequence gets on."""

    kept: list[int]
    """Tokens that belong to it: none behind its end, and no stop token."""
    num_drawn: int
    """Those, and the stop token."""
    reason: FinishReason | None
    """Why it ends with them, if it does."""
    text: str
    tokens: list[int]
    """Those whose text begins in `text`."""
    logprobs: list[TokenLogprob]
    """Of the kept tokens, if its request asked for them."""


def advances(slices: Items[Slice], drawn: Items[Drawn]) -> list[Advance]:
    """What was drawn for each of the slices, up to the token that ends its sequence. Each has drawn some."""
    reasons: list[FinishReason | None] = []
    kept = []
    for s, d in zip(slices, drawn, strict=True):
        reason = s.sequence.ending(d.tokens)
        reasons.append(reason)
        kept.append(d.tokens[:-1] if reason == "stop" else d.tokens)
    pieces = add_tokens([s.sequence.text for s in slices], kept, [reason is not None for reason in reasons])
    found = []
    for d, tokens, reason, piece in zip(drawn, kept, reasons, pieces, strict=True):
        text, released, num_taken, ends = piece
        if ends:
            logprobs = d.logprobs[:num_taken]
            found.append(Advance(tokens[:num_taken], num_taken, "stop", text, released, logprobs))
        else:
            logprobs = d.logprobs[: len(tokens)]
            found.append(Advance(tokens, len(d.tokens), reason, text, released, logprobs))
    return found
