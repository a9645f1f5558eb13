"""KV memory: which block belongs to whom, and how many of them may have memory."""

from puna.kv.block_pool import BlockId, BlockPool
from puna.kv.budget import Budget
from puna.kv.sequence_table import BLOCK_TOKENS, SequenceTable

__all__ = ["BLOCK_TOKENS", "BlockId", "BlockPool", "Budget", "SequenceTable"]
