"""KV memory: which block belongs to whom, and how many of them may have memory."""

from puna.kv.block_pool import BlockId, BlockPool
from puna.kv.budget import Budget
from puna.kv.sequence_table import SequenceTable

__all__ = ["BlockId", "BlockPool", "Budget", "SequenceTable"]
