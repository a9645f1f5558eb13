"""Whatever models, outsiders and limits do in whatever order: sums are exact, nothing new exceeds a limit,
and what is guaranteed to a model nobody else takes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from puna.kv import Budget, ModelKv, SequenceTable
from tests.kv.depth import machine_settings
from tests.kv.fake_kv import FakeKv, Shape, int32

pytestmark = pytest.mark.native

KINDS = [
    [Shape(12, 64, 2, 8), Shape(4, 160, 1, 16, is_state=True)],
    [Shape(6, 192), Shape(8, 64, 2, 8, window=40)],
    [Shape(20, 64)],
]


@dataclass
class Owner:
    fake: FakeKv
    texts: list[list[int]] = field(default_factory=list)
    """That were recorded once."""

    @property
    def kv(self) -> ModelKv:
        return self.fake.kv

    def known(self) -> frozenset[tuple[int, int]]:
        """Blocks whose content can be found, and their groups."""
        blocks = ((group, b) for group, m in enumerate(self.fake.memories) for b in range(m.num_blocks))
        return frozenset((group, b) for group, b in blocks if self.kv.tree.num_recorded(b, group))


class BudgetMachine(RuleBasedStateMachine):
    @initialize(
        limit=st.integers(0, 30), more=st.integers(0, 10), static=st.sampled_from([None, None, None, 0, 1, 2])
    )
    def begin(self, limit: int, more: int, static: int | None) -> None:
        """static: which model has all its memory from the beginning, if that fits."""
        self.budget = Budget(limit * 64, (limit + more) * 64)
        self.leases: list[int] = []
        self.weights: list[int] = []
        self.most_bytes = 0  # that may be there: what was there when a limit was lowered
        self.texts = itertools.count()
        self.found: list[SequenceTable] = []
        self.owners = [Owner(FakeKv(budget=self.budget, shapes=shapes)) for shapes in KINDS]
        if static is not None:
            kv = self.owners[static].kv
            if self.budget.shortage(kv, 0, kv.reserved_bytes) is None:
                self.budget.set_guarantee(kv, kv.reserved_bytes)
                kv.make_static()

    def others_keep(self, asking: Owner | None):
        """What is guaranteed to the others before something happens, to be compared with it afterwards."""
        return {
            id(other): (self._guaranteed_bytes(other), self._safe_content(other))
            for other in self.owners
            if other is not asking
        }

    def _guaranteed_bytes(self, owner: Owner) -> int:
        """How much of what is guaranteed to it the model has, or could get now."""
        could_have = owner.kv.committed_bytes + max(self.budget.available_bytes(owner.kv), 0)
        return min(self.budget.guaranteed_bytes(owner.kv), could_have)

    def _safe_content(self, owner: Owner) -> frozenset[tuple[int, int]]:
        is_safe = owner.kv.committed_bytes <= self.budget.guaranteed_bytes(owner.kv)
        return owner.known() if is_safe else frozenset()

    def check_others(self, asking: Owner | None, before) -> None:
        for other in self.owners:
            if other is not asking:
                guaranteed_bytes, content = before[id(other)]
                assert self._guaranteed_bytes(other) >= guaranteed_bytes, "another took what is guaranteed"
                assert content <= other.known(), "another evicted what is guaranteed"

    @rule(which=st.integers(0, 2), count=st.integers(0, 9))
    def grow(self, which: int, count: int) -> None:
        owner = self.owners[which]
        available, before = owner.kv.available_bytes, self.others_keep(owner)
        is_owing = self.budget.debt_bytes > 0
        num_left = owner.fake.memory.num_blocks - owner.fake.pool().num_used
        table = owner.fake.table()
        if table.grow(16 * count):
            if not is_owing:
                assert owner.kv.used_bytes <= self.budget.most_bytes(owner.kv) - self.budget.leased_bytes
        else:
            owner.fake.release(table)
            assert which < 2 or count > min(available // 64, num_left)
        assert which < 2 or table.held_bytes <= available
        if not is_owing:
            self.check_others(owner, before)

    @precondition(lambda self: any(owner.fake.tables for owner in self.owners))
    @rule(data=st.data(), is_known=st.booleans())
    def release(self, data: st.DataObject, is_known: bool) -> None:
        owner = data.draw(st.sampled_from([owner for owner in self.owners if owner.fake.tables]))
        table = data.draw(st.sampled_from(owner.fake.tables))
        if is_known and table.num_blocks and table not in self.found:
            text, cursor = [next(self.texts)] * (16 * table.num_blocks), owner.kv.tree.start("")
            if owner.kv.has_states:
                table.stepped(len(text))
                owner.kv.tree.snapshot(cursor, table, int32(text))
            owner.kv.tree.record(cursor, table, int32(text))
            owner.texts.append(text)
        owner.fake.release(table)
        owner.fake.mark_in_use()

    @rule(which=st.integers(0, 2), data=st.data())
    def find_again(self, which: int, data: st.DataObject) -> None:
        owner = self.owners[which]
        if owner.texts:
            text, table = data.draw(st.sampled_from(owner.texts)), owner.fake.table()
            covered = owner.kv.tree.follow(owner.kv.tree.start(""), table, int32(text), len(text))
            assert covered == 16 * table.num_blocks
            self.found.append(table)

    @rule(limit=st.integers(0, 40), memory_limit=st.integers(0, 50))
    def set_limits(self, limit: int, memory_limit: int) -> None:
        self.budget.set_limits(limit * 64, memory_limit * 64)
        self._is_as_small_as_can_be()

    def _is_as_small_as_can_be(self) -> None:
        assert not self.budget.excess_bytes or self.budget.reclaimable_bytes == 0

    @rule(which=st.integers(0, 2), num_bytes=st.sampled_from([0, 1, 64, 136, 300, 640, 1000]))
    def set_guarantee(self, which: int, num_bytes: int) -> None:
        kv = self.owners[which].kv
        self.budget.set_guarantee(kv, num_bytes)
        assert self.budget.guarantee_bytes(kv) >= num_bytes
        assert self.budget.guaranteed_bytes(kv) <= self.budget.most_bytes(kv)

    @rule(num_bytes=st.integers(0, 1500), is_held=st.sampled_from([False, False, False, True]))
    def lease(self, num_bytes: int, is_held: bool) -> None:
        available, before = self.budget.available_bytes(None), self.others_keep(None)
        in_use = [owner.kv.used_bytes for owner in self.owners]
        if is_held:
            self.budget.count_lease(num_bytes)
        granted = is_held or self.budget.lease(num_bytes)
        assert granted == (is_held or num_bytes <= available)
        assert in_use == [owner.kv.used_bytes for owner in self.owners]
        if granted:
            self.leases.append(num_bytes)
            self.most_bytes += num_bytes * is_held
        if not is_held:
            self.check_others(None, before)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def end_lease(self, data: st.DataObject) -> None:
        self.budget.end_lease(self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1))))

    @rule(
        which=st.integers(0, 2), num_bytes=st.integers(0, 1000), guarantee=st.sampled_from([0, 0, 100, 500])
    )
    def wake(self, which: int, num_bytes: int, guarantee: int) -> None:
        """Weights come if they fit, and then nothing is above a limit because of them."""
        kv, budget = self.owners[which].kv, self.budget
        before = budget.excess_bytes
        shortage = budget.shortage(kv, num_bytes, guarantee)
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
        cached = sum(o.kv.reclaimable_bytes - o.kv.spare_bytes for o in self.owners)
        if half:
            self.budget.evict_older_half()
            left = sum(o.kv.reclaimable_bytes - o.kv.spare_bytes for o in self.owners)
            assert left <= cached // 2
        self.budget.trim()
        assert all(owner.kv.spare_bytes == 0 for owner in self.owners)

    @invariant()
    def books_balance(self) -> None:
        if not hasattr(self, "budget"):
            return
        budget = self.budget
        budget.check()
        for owner in self.owners:
            owner.fake.check()
            owner.fake.mark_in_use()
        assert budget.leased_bytes == sum(self.leases)
        assert budget.weight_bytes == sum(self.weights)
        # Above a limit, nothing is added; below it, nothing exceeds it.
        total = budget.committed_bytes + budget.leased_bytes
        self.most_bytes = max(budget.limit_bytes, min(self.most_bytes, total))
        assert total <= self.most_bytes

    def teardown(self) -> None:
        for owner in getattr(self, "owners", []):
            for table in owner.fake.tables:
                table.release()
            owner.fake.mark_in_use()
            owner.kv.close()
        assert not hasattr(self, "budget") or self.budget.committed_bytes == 0


TestBudget = BudgetMachine.TestCase
TestBudget.settings = machine_settings(120, 50)
