"""How many tokens share a block."""

from __future__ import annotations

BLOCK_TOKENS = 16
"""Tokens of KV that one block holds, in every model."""


def blocks_for(num_tokens: int) -> int:
    """Blocks that `num_tokens` tokens of one sequence need."""
    return -(-num_tokens // BLOCK_TOKENS)
