"""Replies drawn at random from what grammars allow fit their schemas."""

from __future__ import annotations

import llguidance
import numpy as np
import pytest

from tests.structured.replies import BYTES, END
from tests.structured.schemas import all_cases
from tests.structured.verdicts import fault_of, grammar_of

pytestmark = pytest.mark.unit

_TEMPERATURE = 1.5
_MOST_TOKENS = 3000
_NUM_GROUPS = 10


def drawn_reply(grammar: str, seed: int) -> tuple[str, bool]:
    """A text, and whether it ended of itself. Logits are random, like those of a model that knows nothing."""
    draws = np.random.default_rng(seed)
    matcher = llguidance.LLMatcher(BYTES, grammar)
    reply: list[int] = []
    while len(reply) < _MOST_TOKENS:
        mask = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")[: END + 1]
        assert mask.any(), f"nothing fits behind {bytes(reply)!r}"
        logits = draws.normal(scale=3, size=END + 1) / _TEMPERATURE + draws.gumbel(size=END + 1)
        token = int(np.where(mask, logits, -np.inf).argmax())
        if token == END:
            return bytes(reply).decode(), True
        assert matcher.consume_token(token), matcher.get_error()
        reply.append(token)
    return bytes(reply).decode(errors="ignore"), False


@pytest.mark.parametrize("group", range(_NUM_GROUPS))
def test_replies_fit_their_schemas(group: int) -> None:
    for case in all_cases()[group::_NUM_GROUPS]:
        text, has_ended = drawn_reply(grammar_of(case), case.number)
        fault = fault_of(case, text, has_ended=has_ended)
        assert not fault, f"schema {case.number} ({case.schema}): {text!r}: {fault}"
