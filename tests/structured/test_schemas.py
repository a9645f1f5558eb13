"""Replies drawn at random from what grammars allow fit their schemas."""

from __future__ import annotations

import json

import llguidance
import numpy as np
import pytest

from puna.chat.grammars.builder import GrammarBuilder
from tests.structured.replies import BYTES, END, completed, fits
from tests.structured.schemas import Case, all_cases

pytestmark = pytest.mark.unit

_TEMPERATURE = 1.5
_MOST_TOKENS = 3000
_NUM_GROUPS = 10


def grammar_of(case: Case) -> str:
    builder = GrammarBuilder(lambda _: None)
    return builder.grammar(builder.schema(case.schema))


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
    cases = all_cases()[group::_NUM_GROUPS]
    for case in cases:
        grammar = grammar_of(case)
        text, has_ended = drawn_reply(grammar, case.number)
        told = f"schema {case.number}: {json.dumps(case.schema, ensure_ascii=False)}: {text!r}"
        assert has_ended or not case.is_bounded, told
        assert fits(case.schema, text if has_ended else completed(grammar, text)), told
