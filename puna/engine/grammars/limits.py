"""What a grammar may cost. Whoever wrote it is a stranger, and others wait for the same step."""

from __future__ import annotations

from typing import TypedDict

MAX_GRAMMAR_CHARS = 1 << 18
"""Of its text: a hundred tools with schemas of two kilobytes."""
STACK_BYTES = 1 << 28
"""Of the threads that compile. llguidance follows chains of rules and references by recursion, and so many
characters make no chain that needs more. Only what is used of it takes memory."""
COMPILE_S = 30.0
"""From the request, or from when the vocabulary is prepared, until its grammar must be there; it may wait for
others'."""
REPLY_S = 1.0
"""Processor time that a reply's grammar may take in all, and TOKEN_S more for each of its tokens: others wait
in the same steps. What real schemas need is a hundredth of the latter."""
TOKEN_S = 0.005
MAX_COMPILED = 32
"""Grammars of one model that are kept compiled, those used last."""


class ParserLimits(TypedDict):
    """Of llguidance, by its names."""

    max_items_in_row: int
    initial_lexer_fuel: int
    step_lexer_fuel: int
    step_max_items: int
    max_lexer_states: int
    max_grammar_size: int


PARSER_LIMITS = ParserLimits(
    max_items_in_row=2000,
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=50_000,
    max_grammar_size=500_000,
)
"""llguidance's own, but for the states of an automaton, of which each takes a kilobyte or two. With fewer
items in a row, schemas of some hundred optional properties could not be used."""
