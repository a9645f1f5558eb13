"""The KV memory of one model: who owns it, and who finds what is in there."""

from __future__ import annotations

from collections.abc import Sequence

from puna.backends.base import BlockMemory
from puna.kv.block_pool import BlockPool
from puna.kv.blocks import BLOCK_TOKENS, blocks_for
from puna.kv.budget import Budget
from puna.kv.identity import KvIdentity
from puna.kv.prefix_cache import PrefixCache
from puna.kv.sequence_table import SequenceTable


class ModelKv:
    """All sizes are in bytes."""

    def __init__(self, identity: KvIdentity, memories: Sequence[BlockMemory], budget: Budget) -> None:
        """memories: for each group of layers, this object's to close."""
        (self.memory,) = memories
        self.identity = identity
        self.pool = BlockPool(self.memory, budget)
        self.tree = PrefixCache(self.pool)
        self._block_bytes = self.pool.block_bytes

    def new_table(self) -> SequenceTable:
        return SequenceTable(self.pool)

    def bytes_for(self, num_tokens: int) -> int:
        """What a table of so many tokens takes."""
        return blocks_for(num_tokens) * self._block_bytes

    def tokens_within(self, num_bytes: int) -> int:
        """How many tokens a table of that size has room for."""
        return num_bytes // self._block_bytes * BLOCK_TOKENS

    @property
    def used_bytes(self) -> int:
        """In blocks that somebody holds."""
        return self.pool.num_used * self._block_bytes

    @property
    def cached_bytes(self) -> int:
        """In blocks that nobody holds, but the next sequence may find."""
        return self.pool.num_cached * self._block_bytes

    @property
    def committed_bytes(self) -> int:
        return self.pool.committed_bytes

    @property
    def reserved_bytes(self) -> int:
        """Address space."""
        return self.pool.reserved_bytes

    @property
    def reclaimable_bytes(self) -> int:
        return self.pool.reclaimable_bytes

    @property
    def available_bytes(self) -> int:
        """That tables could take now."""
        return self.pool.num_available * self._block_bytes

    @property
    def most_bytes(self) -> int:
        """That tables could take if other models used no more than is guaranteed to them."""
        return self.pool.most_blocks * self._block_bytes

    @property
    def most_bytes_without_leases(self) -> int:
        """The same when all leases have ended."""
        return self.pool.most_blocks_without_leases * self._block_bytes

    @property
    def is_too_coarse(self) -> bool:
        """Whether its extents are large against what it could have."""
        return self.pool.is_too_coarse

    @property
    def must_shrink(self) -> bool:
        """Whether what is given back is gone: to fall below a limit, or to those to whom it is guaranteed."""
        return self.pool.must_shrink

    def keep_extents(self) -> None:
        """It is never too coarse: there is no address space for a finer one."""
        self.pool.keep_extents()

    def make_static(self) -> None:
        """Brings all memory, now, and keeps it. Raises DeviceOutOfMemory."""
        self.pool.make_static()

    def is_guaranteed(self, num_bytes: int) -> bool:
        """Whether so much more is within what is guaranteed to the model."""
        return self.pool.is_sure_of(-(-num_bytes // self._block_bytes))

    def unguaranteed_bytes(self, num_bytes: int) -> int:
        """Of so much more, what is beyond that."""
        return self.pool.shared_bytes(-(-num_bytes // self._block_bytes))

    def gives_to(self, other: ModelKv) -> bool:
        """Whether `other` gains by what this one gives back."""
        return self.pool.gives_to(other.pool)

    def competes_with(self, other: ModelKv) -> bool:
        """Whether they take memory from the same."""
        return self.pool.competes_with(other.pool)

    def is_all_held_by(self, table: SequenceTable) -> bool:
        """Whether nobody else has memory in use, in any model."""
        return self.pool.is_all_held_by(table.num_blocks)

    def describe_need(self, num_bytes: int) -> str:
        """For users: why there is not so much."""
        return self.pool.describe_need(-(-num_bytes // self._block_bytes))

    def drop_cached(self) -> None:
        """Makes all that is cached spare."""
        self.pool.drop_cached()

    def trim(self) -> None:
        """Gives spare memory back to the system."""
        self.pool.trim()

    def close(self) -> None:
        """Gives everything back. Nobody holds any of it."""
        self.pool.close()

    def check(self) -> None:
        """Asserts that its books are right."""
        self.pool.check()
        self.tree.check()
