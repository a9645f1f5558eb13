"""KV memory: which block belongs to whom, what it holds, and how many of them may have memory."""

from typing import TYPE_CHECKING

from puna import lazy
from puna.kv.block_pool import BlockId, BlockPool
from puna.kv.blocks import BLOCK_TOKENS
from puna.kv.budget import Budget

if TYPE_CHECKING:
    from puna.kv.prefix_cache import Cursor, PrefixCache
    from puna.kv.sequence_table import MoveKv, SequenceTable

__all__ = [
    "BLOCK_TOKENS",
    "BlockId",
    "BlockPool",
    "Budget",
    "Cursor",
    "MoveKv",
    "PrefixCache",
    "SequenceTable",
]

__getattr__ = lazy.names(
    __name__,
    {
        "Cursor": "puna.kv.prefix_cache",
        "MoveKv": "puna.kv.sequence_table",
        "PrefixCache": "puna.kv.prefix_cache",
        "SequenceTable": "puna.kv.sequence_table",
    },
)
