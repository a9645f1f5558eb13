"""Whatever sequences do in whatever order: each reads its own KV, nothing leaks, memory keeps its limits."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from puna.kv import Budget, Cursor, SequenceTable
from puna.kv.block_pool import BlockId
from tests.kv.fake_kv import FakeKv, Value, expected, int32, value_of

pytestmark = pytest.mark.unit

WHICH = st.sampled_from([0, 0, 0, 1])
SALTS = st.sampled_from(["", "", "", "salt"])
# Long common starts, few different tokens: so that texts meet, and part, at any place.
TEXTS = st.builds(
    lambda start, end: [1] * start + end,
    st.integers(0, 60),
    st.lists(st.integers(1, 2), min_size=1, max_size=8),
)


@dataclass
class Holder:
    """A sequence. Once it has removed tokens, its KV is no longer what its tokens say."""

    kv: FakeKv
    table: SequenceTable
    cursor: Cursor
    salt: str
    tokens: list[int] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    shifted: bool = False

    def record(self, tail: bool) -> None:
        record = self.kv.cache.record_tail if tail else self.kv.cache.record
        if not self.shifted:
            record(self.cursor, self.table, int32(self.tokens))


class CacheMachine(RuleBasedStateMachine):
    """Two models with blocks of different sizes on one budget that is far too small."""

    @initialize(
        limit=st.integers(12, 40),
        extents=st.tuples(st.integers(1, 4), st.integers(1, 2)),
        waste=st.booleans(),
    )
    def begin(self, limit: int, extents: tuple[int, int], waste: bool) -> None:
        self.budget = Budget(limit * 64)
        self.most_bytes = 0
        self.kvs = [
            FakeKv(24, self.budget, 64, extents[0], 16 * waste),
            FakeKv(8, self.budget, 192, extents[1], 16 * waste),
        ]
        self.holders: list[Holder] = []
        for kv in self.kvs:
            kv.pool.evict = self.watched(kv, kv.pool.evict)

    def watched(self, kv: FakeKv, evict):
        """Evicting a block must cost no other: what builds on it has gone before."""

        def watch() -> None:
            known = self.num_known(kv)
            evict()
            assert self.num_known(kv) == known - 1

        return watch

    def num_known(self, kv: FakeKv) -> int:
        return sum(kv.cache.num_recorded(BlockId(block)) > 0 for block in range(kv.memory.num_blocks))

    def pick(self, data: st.DataObject) -> Holder:
        return self.holders[data.draw(st.integers(0, len(self.holders) - 1))]

    @rule(which=WHICH, text=TEXTS, salt=SALTS, tail=st.booleans(), reuse=st.integers(0, 3))
    def arrive(self, which: int, text: list[int], salt: str, tail: bool, reuse: int) -> None:
        """Reuses some of what is there and computes the rest, or leaves if there is no room."""
        kv = self.kvs[which]
        holder = Holder(kv, kv.table(), kv.cache.start(salt), salt, text, expected(text, salt))
        limit = len(text) - 1 if reuse else 0
        covered = kv.cache.follow(holder.cursor, holder.table, int32(text), limit)
        assert kv.values(holder.table, covered) == holder.values[:covered]
        assert covered < len(text)
        found = kv.cache.find_partial(holder.cursor, int32(text), limit) if reuse > 1 else None
        if found:
            kv.pool.retain([found[0]])
        room = holder.table.grow(len(text))
        if found:
            if room:
                covered = self.copy(holder, *found, covered)
            kv.pool.release([found[0]])
        if room:
            kv.compute(holder.table, text, covered, salt)
            self.holders.append(holder)
            holder.record(tail)
        else:
            kv.release(holder.table)

    def copy(self, holder: Holder, block: BlockId, count: int, covered: int) -> int:
        assert 0 < count <= 16
        assert covered + count < len(holder.tokens)
        source = holder.table.array.copy()
        source[covered // 16] = block
        holder.kv.move(source, holder.table.array, covered, covered, count)
        assert holder.kv.values(holder.table, covered + count) == holder.values[: covered + count]
        return covered + count

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), tokens=st.lists(st.integers(1, 2), min_size=1, max_size=20), tail=st.booleans())
    def append(self, data: st.DataObject, tokens: list[int], tail: bool) -> None:
        holder = self.pick(data)
        begin = len(holder.values)
        if not holder.table.grow(begin + len(tokens)):
            return
        for token in tokens:
            holder.tokens.append(token)
            holder.values.append(value_of([*holder.tokens, *[0] * holder.shifted], holder.salt))
            holder.kv.write(holder.table, len(holder.values) - 1, holder.values[-1])
        holder.record(tail)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), count=st.integers(1, 20))
    def draft(self, data: st.DataObject, count: int) -> None:
        """Tokens are computed behind the others and rejected."""
        holder = self.pick(data)
        num_tokens = len(holder.values)
        if holder.table.grow(num_tokens + count):
            for position in range(num_tokens, num_tokens + count):
                holder.kv.write(holder.table, position, ("rejected", 0))
            holder.table.truncate(num_tokens)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        holder = self.pick(data)
        count = data.draw(st.integers(0, len(holder.values)))
        kv = holder.kv
        if table := holder.table.fork(count, kv.move):
            kv.tables.append(table)
            cursor = Cursor(holder.cursor.node, holder.cursor.num_blocks)
            if holder.cursor.num_blocks > count // 16 or data.draw(st.booleans()):
                cursor = kv.cache.start(holder.salt)
            fork = Holder(
                kv, table, cursor, holder.salt, holder.tokens[:count], holder.values[:count], holder.shifted
            )
            self.holders.append(fork)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        holder = self.pick(data)
        num_tokens = len(holder.values)
        if num_tokens == 0:
            return
        begin = data.draw(st.integers(0, num_tokens - 1))
        end = data.draw(st.integers(begin + 1, num_tokens))
        before = list(holder.table.blocks)
        if holder.table.remove(begin, end, num_tokens, holder.kv.cache, holder.kv.move):
            moved = [(content, rotation + begin - end) for content, rotation in holder.values[end:]]
            holder.values[begin:] = moved
            del holder.tokens[begin:end]
            holder.shifted = holder.shifted or end < num_tokens
            holder.record(tail=True)
        else:
            assert list(holder.table.blocks) == before

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), tail=st.booleans())
    def leave(self, data: st.DataObject, tail: bool) -> None:
        holder = self.pick(data)
        holder.record(tail)
        self.holders = [other for other in self.holders if other is not holder]
        holder.kv.release(holder.table)

    @rule(which=WHICH, salt=SALTS, one=TEXTS, two=TEXTS)
    def equal_keys_are_equal_prefixes(self, which: int, salt: str, one: list[int], two: list[int]) -> None:
        (key, text), (other_key, other_text) = (self.next_block(self.kvs[which], salt, t) for t in (one, two))
        assert (key == other_key) == (text == other_text)

    def next_block(self, kv: FakeKv, salt: str, text: list[int]) -> tuple[Hashable, list[int]]:
        """The key of what must be computed next, and the tokens up to its end."""
        cursor, table = kv.cache.start(salt), SequenceTable(kv.pool)
        covered = kv.cache.follow(cursor, table, int32(text), len(text))
        assert kv.values(table, covered) == expected(text[:covered], salt)
        table.release()
        return kv.cache.next_key(cursor, int32(text)), text[: covered + 16]

    @rule(which=WHICH, drop=st.integers(0, 3))
    def idle(self, which: int, drop: int) -> None:
        pool = self.kvs[which].pool
        if drop == 3:
            pool.drop_cached()
            assert pool.num_cached == 0
        pool.trim()
        assert pool.spare_bytes == 0

    @rule(limit=st.integers(0, 40), memory_limit=st.integers(0, 60))
    def limit(self, limit: int, memory_limit: int) -> None:
        self.budget.set_limits(limit * 64, memory_limit * 64)

    @rule(num_bytes=st.integers(0, 1000))
    def lease(self, num_bytes: int) -> None:
        self.budget.lease(num_bytes)

    @rule()
    def end_leases(self) -> None:
        self.budget.end_lease(self.budget.leased_bytes)

    @rule(which=WHICH, num_bytes=st.integers(0, 500))
    def minimum(self, which: int, num_bytes: int) -> None:
        self.budget.set_minimum(self.kvs[which].pool, num_bytes)

    @rule()
    def pressure(self) -> None:
        self.budget.evict_older_half()
        self.budget.trim()

    @rule(which=WHICH, data=st.data())
    def available_is_a_promise(self, which: int, data: st.DataObject) -> None:
        pool = self.kvs[which].pool
        available = pool.num_available
        assert pool.acquire(available + 1) is None
        count = min(available, data.draw(st.integers(0, 24)))
        blocks = pool.acquire(count)
        assert blocks is not None
        assert len(set(blocks)) == count
        pool.release(blocks)

    @invariant()
    def everyone_reads_their_own(self) -> None:
        for holder in getattr(self, "holders", []):
            assert holder.kv.values(holder.table, len(holder.values)) == holder.values

    @invariant()
    def the_books_balance(self) -> None:
        if not hasattr(self, "kvs"):
            return
        for kv in self.kvs:
            kv.check()
            kv.memory.in_use = {block for table in kv.tables for block in table.blocks}
        committed = sum(kv.pool.committed_bytes for kv in self.kvs)
        total = committed + self.budget.leased_bytes
        self.most_bytes = max(self.budget.limit_bytes, min(self.most_bytes, total))
        assert committed == self.budget.committed_bytes
        assert total <= self.most_bytes, "more than the limit, and than there was when it was lowered"
        self.budget.check()
        # What blocks were written to and not released takes memory, whoever counts what.
        assert sum(kv.memory.backed_bytes for kv in self.kvs) <= committed

    def teardown(self) -> None:
        for kv in getattr(self, "kvs", []):
            kv.memory.in_use.clear()
            for table in kv.tables:
                table.release()
            assert kv.pool.num_used == 0
            kv.pool.close()
            kv.cache.check()
            assert kv.memory.backed_bytes == kv.pool.committed_bytes == 0
        if hasattr(self, "budget"):
            assert self.budget.committed_bytes == 0


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
