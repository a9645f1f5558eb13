"""What is embedded: words that are one token each."""

from __future__ import annotations

import random
from collections.abc import Sequence

_WORDS = """time year people way day man thing woman life child world school state family student group
country
problem hand part place case week company system program question work government number night point home
water room mother area money story fact month lot right study book eye job word business issue side kind head
house service friend father power hour game line end member law car city community name president team minute
idea body information back parent face others level office door health person art war history party result
""".split()  # noqa: SIM905


def texts(count: int, shortest: int, longest: int, seed: int = 7) -> list[str]:
    """Of lengths, in tokens with both ends, that are equally likely."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(_WORDS, k=rng.randint(shortest, longest) - 2)) for _ in range(count)]


def padded_batches(tokens: Sequence[Sequence[int]], size: int) -> list[list[int]]:
    """Indexes of texts, by length: so little of a batch is padding."""
    order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
    return [order[begin : begin + size] for begin in range(0, len(order), size)]
