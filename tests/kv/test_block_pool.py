"""Blocks never leak, never have two owners by accident, and their memory never exceeds the budget."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from puna.kv import BlockId, BlockPool, Budget
from tests.kv.fake_memory import FakeMemory

pytestmark = pytest.mark.unit


def test_the_lowest_free_block_is_used_first():
    pool = BlockPool(FakeMemory(8), Budget(8 * 64))
    first, second, third = pool.acquire(3) or []
    pool.release([first])
    pool.release([second])
    assert pool.acquire(2) == [first, second]
    assert pool.num_used == 3
    assert third not in (pool.acquire(5) or [])
    pool.check()


def test_acquire_is_all_or_nothing():
    pool = BlockPool(FakeMemory(4), Budget(4 * 64))
    assert pool.acquire(3) == [0, 1, 2]
    assert pool.acquire(2) is None
    assert (pool.num_used, pool.num_available) == (3, 1)
    assert pool.acquire(0) == []


def test_a_shared_block_is_free_after_its_last_owner():
    pool = BlockPool(FakeMemory(1), Budget(64))
    blocks = pool.acquire(1) or []
    pool.retain(blocks)
    pool.release(blocks)
    assert pool.acquire(1) is None
    pool.release(blocks)
    assert pool.acquire(1) == blocks


def test_trim_gives_the_memory_of_free_blocks_back():
    memory, budget = FakeMemory(4), Budget(4 * 64)
    pool = BlockPool(memory, budget)
    kept, freed = pool.acquire(2) or []
    pool.release([freed])
    assert budget.committed_bytes == 2 * 64
    pool.trim()
    assert (memory.released, budget.committed_bytes) == ([freed], 64)
    assert pool.acquire(1) == [freed]
    pool.release([kept, freed])
    pool.close()
    assert (sorted(memory.released), memory.closed, budget.committed_bytes) == ([0, 1, 1], True, 0)


def test_the_budget_bounds_all_pools_together():
    budget = Budget(10 * 64)
    a, b = BlockPool(FakeMemory(10), budget), BlockPool(FakeMemory(5, block_bytes=128), budget)
    assert len(a.acquire(6) or []) == 6
    assert (a.num_available, b.num_available) == (4, 2)
    assert b.acquire(3) is None
    assert len(b.acquire(2) or []) == 2
    assert a.acquire(1) is None


def test_spare_memory_of_one_pool_is_there_for_the_others():
    budget = Budget(10 * 64)
    memory = FakeMemory(10)
    a, b = BlockPool(memory, budget), BlockPool(FakeMemory(5, block_bytes=128), budget)
    a.release(a.acquire(10) or [])
    assert memory.released == []
    assert b.num_available == 5
    assert len(b.acquire(5) or []) == 5
    assert len(memory.released) == 10
    assert a.num_available == 0


def test_no_more_spare_memory_is_taken_than_needed():
    budget = Budget(10 * 64)
    pools = [BlockPool(FakeMemory(10), budget) for _ in range(3)]
    for pool in pools[:2]:
        pool.release(pool.acquire(4) or [])
    assert len(pools[2].acquire(5) or []) == 5
    assert [pool.spare_bytes for pool in pools] == [0, 4 * 64, 0]


def test_extents_are_committed_and_given_back_whole():
    memory, budget = FakeMemory(12, extent_blocks=4, waste_bytes=20), Budget(1000)
    pool = BlockPool(memory, budget)
    blocks = pool.acquire(6) or []
    assert blocks == [0, 1, 2, 3, 4, 5]
    assert budget.committed_bytes == pool.committed_bytes == 3 * (4 * 64 + 20), "and one ahead"
    assert memory.fetched == [2]
    pool.release(blocks[:3])
    pool.trim()
    assert memory.released == [2]
    pool.release(blocks[3:])
    pool.trim()
    assert sorted(memory.released) == [0, 1, 2]
    assert budget.committed_bytes == pool.num_spare == 0
    pool.check()


def test_nothing_is_fetched_ahead_at_the_cost_of_others():
    memory, budget = FakeMemory(12, extent_blocks=4), Budget(2 * 4 * 64)
    other = BlockPool(FakeMemory(4, extent_blocks=4), budget)
    other.release(other.acquire(1) or [])
    pool = BlockPool(memory, budget)
    assert len(pool.acquire(4) or []) == 4
    assert (memory.fetched, budget.committed_bytes) == ([], 2 * 4 * 64)
    assert len(pool.acquire(1) or []) == 1, "what the other has spare is there when it is needed"
    assert other.committed_bytes == 0


def test_the_last_extent_may_be_short():
    pool = BlockPool(FakeMemory(10, extent_blocks=4), Budget(10_000))
    assert pool.num_available == 10
    assert pool.acquire(11) is None
    assert pool.acquire(10) == list(range(10))
    pool.check()


@pytest.mark.parametrize("misuse", ["release", "retain"])
def test_misuse_of_a_free_block_is_caught(misuse: str):
    pool = BlockPool(FakeMemory(2), Budget(2 * 64))
    blocks = pool.acquire(1) or []
    pool.release(blocks)
    with pytest.raises(AssertionError, match=f"{misuse} of free block 0"):
        getattr(pool, misuse)(blocks)


def test_closing_a_pool_in_use_is_caught():
    pool = BlockPool(FakeMemory(2), Budget(2 * 64))
    pool.acquire(1)
    with pytest.raises(AssertionError, match="1 blocks in use"):
        pool.close()


def test_a_static_pool_has_all_its_memory_and_keeps_it():
    memory, budget = FakeMemory(6, extent_blocks=2), Budget(10 * 64)
    pool = BlockPool(memory, budget)
    pool.make_static()
    assert (memory.committed, budget.committed_bytes) == ([0, 1, 2], 6 * 64)
    other = BlockPool(FakeMemory(10), budget)
    assert (pool.most_blocks, other.num_available) == (6, 4)
    blocks = pool.acquire(6) or []
    assert len(blocks) == 6
    assert pool.acquire(1) is None
    pool.release(blocks)
    pool.trim()
    assert (pool.spare_bytes, pool.reclaimable_bytes, other.num_available) == (0, 0, 4)
    assert other.acquire(5) is None
    pool.check()
    pool.close()
    assert (sorted(memory.released), other.num_available) == ([0, 1, 2], 10)


class PoolMachine(RuleBasedStateMachine):
    """Two pools with blocks of different sizes on one budget; the model is a list of owners."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget(20 * 64)
        self.memories = [FakeMemory(12, extent_blocks=2, waste_bytes=8), FakeMemory(6, block_bytes=192)]
        self.pools = [BlockPool(memory, self.budget) for memory in self.memories]
        self.owned: list[tuple[int, list[BlockId]]] = []

    @rule(which=st.integers(0, 1), count=st.integers(0, 9))
    def acquire(self, which: int, count: int) -> None:
        pool = self.pools[which]
        available = pool.num_available
        blocks = pool.acquire(count)
        assert (blocks is not None) == (count <= available)
        if blocks is not None:
            assert len(set(blocks)) == count
            in_use = {b for pool_index, owned in self.owned for b in owned if pool_index == which}
            assert in_use.isdisjoint(blocks)
            self.owned.append((which, blocks))

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        which, blocks = self.owned.pop(data.draw(st.integers(0, len(self.owned) - 1)))
        self.pools[which].release(blocks)
        self.memories[which].in_use = {b for pool, owned in self.owned for b in owned if pool == which}

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        which, blocks = self.owned[data.draw(st.integers(0, len(self.owned) - 1))]
        self.pools[which].retain(blocks)
        self.owned.append((which, blocks))

    @rule(which=st.integers(0, 1))
    def trim(self, which: int) -> None:
        self.pools[which].trim()
        assert self.pools[which].spare_bytes == 0

    @invariant()
    def nothing_leaks(self) -> None:
        committed = 0
        for index, pool in enumerate(self.pools):
            pool.check()
            in_use = {block for which, owned in self.owned for block in owned if which == index}
            assert pool.num_used == len(in_use)
            self.memories[index].in_use = set(in_use)
            committed += pool.committed_bytes
        assert committed == self.budget.committed_bytes <= self.budget.limit_bytes

    def teardown(self) -> None:
        for which, blocks in self.owned:
            self.pools[which].release(blocks)
        for pool, memory in zip(self.pools, self.memories, strict=True):
            memory.in_use.clear()
            pool.close()
        assert self.budget.committed_bytes == 0


TestPools = PoolMachine.TestCase
TestPools.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
