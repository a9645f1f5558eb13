"""KV memory: which block belongs to whom, what it holds, and how many of them may have memory."""

from puna.kv.block_pool import BlockId, BlockPool
from puna.kv.budget import Budget
from puna.kv.prefix_cache import Cursor, PrefixCache
from puna.kv.sequence_table import BLOCK_TOKENS, MoveKv, SequenceTable

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
