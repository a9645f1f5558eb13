"""What a grammar may cost. Whoever wrote it is a stranger, and others wait for the same step."""

from __future__ import annotations

from llguidance import LLParserLimits

MAX_GRAMMAR_BYTES = 1 << 20
"""Of its text: some hundred tools with schemas of several kilobytes."""
COMPILE_S = 10.0
"""From the request until its grammar must be there; it may wait for others', and for the vocabulary."""
MAX_COMPILED = 32
"""Grammars of one model that are kept compiled, those used last."""


def parser_limits() -> LLParserLimits:
    """Real schemas stay far below all of these."""
    return LLParserLimits(
        max_items_in_row=2000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=50_000,
        max_grammar_size=500_000,
        verbose_errors=False,
    )
