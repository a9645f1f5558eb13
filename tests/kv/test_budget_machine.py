"""Whatever pools, outsiders and limits do in whatever order: sums are exact, nothing new exceeds a limit, and
what a pool is sure of nobody else takes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from puna.kv import BlockId, BlockPool, Budget
from tests.kv.fake_memory import FakeMemory

pytestmark = pytest.mark.unit

KINDS = [(12, 64, 2, 8), (6, 192, 1, 0), (20, 64, 1, 0)]
"""Of pools: blocks, their bytes, blocks of an extent, bytes left over in it."""


@dataclass
class Index:
    """Knows what it is told to."""

    pool: BlockPool
    known: set[int] = field(default_factory=set)

    def num_recorded(self, block: BlockId) -> int:
        return int(block in self.known)

    def forget(self, block: BlockId) -> None:
        self.known.discard(block)
        self.pool.uncache(block)


@dataclass
class Owner:
    memory: FakeMemory
    pool: BlockPool
    index: Index
    held: list[list[BlockId]] = field(default_factory=list)

    @property
    def in_use(self) -> set[int]:
        return {block for blocks in self.held for block in blocks}


class BudgetMachine(RuleBasedStateMachine):
    @initialize(
        limit=st.integers(0, 30), more=st.integers(0, 10), static=st.sampled_from([None, None, None, 0, 1, 2])
    )
    def begin(self, limit: int, more: int, static: int | None) -> None:
        """static: which pool has all its memory from the beginning, if that fits."""
        self.budget = Budget(limit * 64, (limit + more) * 64)
        self.owners: list[Owner] = []
        self.leases: list[int] = []
        self.weights: list[int] = []
        self.most_bytes = 0  # that may be there: what was there when a limit was lowered
        for kind in KINDS:
            memory = FakeMemory(*kind)
            pool = BlockPool(memory, self.budget)
            pool.cache = Index(pool)
            self.owners.append(Owner(memory, pool, pool.cache))
        if static is not None:
            pool = self.owners[static].pool
            if self.budget.shortage(pool, 0, pool.reserved_bytes) is None:
                self.budget.set_minimum(pool, pool.reserved_bytes)
                pool.make_static()

    def others_keep(self, asking: Owner | None):
        """What the others are sure of before something happens, to be compared with it afterwards."""
        return {
            id(other): (_sure_bytes(other, self.budget), self._safe_content(other))
            for other in self.owners
            if other is not asking
        }

    def _safe_content(self, owner: Owner) -> frozenset[int]:
        is_safe = owner.pool.committed_bytes <= self.budget.assured_bytes(owner.pool)
        return frozenset(owner.index.known) if is_safe else frozenset()

    def check_others(self, asking: Owner | None, before) -> None:
        for other in self.owners:
            if other is not asking:
                sure_bytes, content = before[id(other)]
                assert _sure_bytes(other, self.budget) >= sure_bytes, "another took what a pool was sure of"
                assert content <= other.index.known, "another evicted within a minimum"

    @rule(which=st.integers(0, 2), count=st.integers(0, 9))
    def acquire(self, which: int, count: int) -> None:
        owner = self.owners[which]
        available, before = owner.pool.num_available, self.others_keep(owner)
        is_owing = self.budget.debt_bytes > 0
        used = owner.pool.num_used
        blocks = owner.pool.acquire(count)
        assert (blocks is not None) == (count <= available)
        if blocks is not None:
            owner.held.append(blocks)
            if not is_owing:
                assert used + count <= owner.pool.most_blocks
        if not is_owing:
            self.check_others(owner, before)

    @precondition(lambda self: any(owner.held for owner in self.owners))
    @rule(data=st.data(), is_known=st.booleans())
    def release(self, data: st.DataObject, is_known: bool) -> None:
        owner = data.draw(st.sampled_from([owner for owner in self.owners if owner.held]))
        blocks = owner.held.pop(data.draw(st.integers(0, len(owner.held) - 1)))
        if is_known:
            owner.index.known.update(blocks)
        owner.memory.in_use = owner.in_use
        owner.pool.release(blocks)

    @rule(which=st.integers(0, 2), data=st.data())
    def find_again(self, which: int, data: st.DataObject) -> None:
        owner = self.owners[which]
        cached = sorted(owner.index.known - owner.in_use)
        if cached:
            blocks = [BlockId(block) for block in data.draw(st.lists(st.sampled_from(cached), unique=True))]
            owner.pool.retain(blocks)
            owner.held.append(blocks)
            for block in blocks:  # to be overwritten
                owner.index.forget(block)

    @rule(limit=st.integers(0, 40), memory_limit=st.integers(0, 50))
    def set_limits(self, limit: int, memory_limit: int) -> None:
        self.budget.set_limits(limit * 64, memory_limit * 64)
        self._is_as_small_as_can_be()

    def _is_as_small_as_can_be(self) -> None:
        assert not self.budget.excess_bytes or self.budget.reclaimable_bytes == 0

    @rule(which=st.integers(0, 2), num_bytes=st.sampled_from([0, 1, 64, 136, 300, 640, 1000]))
    def set_minimum(self, which: int, num_bytes: int) -> None:
        pool = self.owners[which].pool
        self.budget.set_minimum(pool, num_bytes)
        assert self.budget.minimum_bytes(pool) >= num_bytes
        assert self.budget.assured_bytes(pool) <= pool.most_blocks * pool.block_bytes + 8 * 6 or (
            self.budget.assured_bytes(pool) > pool.reserved_bytes
        )

    @rule(num_bytes=st.integers(0, 1500), is_held=st.sampled_from([False, False, False, True]))
    def lease(self, num_bytes: int, is_held: bool) -> None:
        available, before = self.budget.available_bytes(None), self.others_keep(None)
        in_use = [owner.pool.num_used for owner in self.owners]
        granted = self.budget.lease(num_bytes, is_held=is_held)
        assert granted == (is_held or num_bytes <= available)
        assert in_use == [owner.pool.num_used for owner in self.owners]
        if granted:
            self.leases.append(num_bytes)
            self.most_bytes += num_bytes * is_held
        if not is_held:
            self.check_others(None, before)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def end_lease(self, data: st.DataObject) -> None:
        self.budget.end_lease(self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1))))

    @rule(which=st.integers(0, 2), num_bytes=st.integers(0, 1000), minimum=st.sampled_from([0, 0, 100, 500]))
    def wake(self, which: int, num_bytes: int, minimum: int) -> None:
        """Weights come if they fit, and then nothing is above a limit because of them."""
        pool, budget = self.owners[which].pool, self.budget
        before = budget.excess_bytes
        shortage = budget.shortage(pool, num_bytes, minimum)
        if shortage is None:
            self.budget.add_weights(num_bytes)
            self.weights.append(num_bytes)
            assert budget.excess_bytes <= before
            assert budget.committed_bytes + budget.leased_bytes + budget.weight_bytes <= max(
                budget.memory_limit_bytes, before + budget.memory_limit_bytes
            )
        else:
            assert shortage.needed_bytes + shortage.taken_bytes > shortage.limit_bytes

    @precondition(lambda self: self.weights)
    @rule()
    def sleep(self) -> None:
        self.budget.remove_weights(self.weights.pop())

    @rule(half=st.booleans())
    def give_back(self, half: bool) -> None:
        cached = sum(o.pool.reclaimable_bytes - o.pool.spare_bytes for o in self.owners)
        if half:
            self.budget.evict_older_half()
            left = sum(o.pool.reclaimable_bytes - o.pool.spare_bytes for o in self.owners)
            assert left <= cached // 2
        self.budget.trim()
        assert all(owner.pool.spare_bytes == 0 for owner in self.owners)

    @invariant()
    def books_balance(self) -> None:
        if not hasattr(self, "budget"):
            return
        budget = self.budget
        budget.check()
        for owner in self.owners:
            owner.pool.check()
            owner.memory.in_use = owner.in_use
            assert owner.pool.num_used == len(owner.in_use)
        assert budget.leased_bytes == sum(self.leases)
        assert budget.weight_bytes == sum(self.weights)
        # Above a limit, nothing is added; below it, nothing exceeds it.
        total = budget.committed_bytes + budget.leased_bytes
        self.most_bytes = max(budget.limit_bytes, min(self.most_bytes, total))
        assert total <= self.most_bytes

    def teardown(self) -> None:
        for owner in getattr(self, "owners", []):
            for blocks in owner.held:
                owner.pool.release(blocks)
            owner.memory.in_use.clear()
            owner.pool.close()
        assert not hasattr(self, "budget") or self.budget.committed_bytes == 0


def _sure_bytes(owner: Owner, budget: Budget) -> int:
    """How much of what it is sure of the pool has, or could get now."""
    pool = owner.pool
    extents = -(-(pool.num_available + pool.num_used) // owner.memory.extent_blocks)
    return min(budget.assured_bytes(pool), extents * pool.extent_bytes)


TestBudget = BudgetMachine.TestCase
TestBudget.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
