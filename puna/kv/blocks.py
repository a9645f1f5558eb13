"""How many tokens share a block."""

from __future__ import annotations

from puna.backends.base import BLOCK_TOKENS

__all__ = ["BLOCK_TOKENS", "blocks_for"]


def blocks_for(num_tokens: int) -> int:
    """Blocks that `num_tokens` tokens of one sequence need."""
    return -(-num_tokens // BLOCK_TOKENS)
