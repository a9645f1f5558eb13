"""Numbers of KV blocks, by group of a model's layers."""

from __future__ import annotations

import msgspec


class GroupStats(msgspec.Struct, frozen=True):
    """Blocks with memory, of layers that see equally many tokens."""

    window: int | None
    """How many tokens they see; None: all."""
    block_bytes: int
    num_used: int
    """That a sequence or session holds."""
    num_cached: int
    """Not held, but found by later sequences."""
    num_spare: int
    is_state: bool = False
    """A block is the state of a sequence's recurrent layers, or a snapshot of it."""
