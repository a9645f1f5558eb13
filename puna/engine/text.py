"""From a step's tokens to each sequence's text, and whether it ends there."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import NamedTuple

from puna._native import add_tokens
from puna.engine.batch import Slice
from puna.engine.request import FinishReason, TokenLogprob
from puna.engine.sampling import Drawn


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
    reasons = [s.sequence.ending(d.tokens) for s, d in zip(slices, drawn, strict=True)]
    tokens = [d.tokens[:-1] if r == "stop" else d.tokens for d, r in zip(drawn, reasons, strict=True)]
    pieces = add_tokens([s.sequence.text for s in slices], tokens, [r is not None for r in reasons])
    return [
        Advance(
            kept=kept[:num_taken],
            num_drawn=num_taken if ends else len(d.tokens),
            reason="stop" if ends else reason,
            text=text,
            tokens=released,
            logprobs=d.logprobs[:num_taken],
        )
        for d, kept, reason, (text, released, num_taken, ends) in zip(
            drawn, tokens, reasons, pieces, strict=True
        )
    ]
