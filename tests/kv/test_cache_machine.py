"""Whatever sequences do in whatever order, on layers of whatever kinds: each reads its own KV, nothing leaks,
memory keeps its limits."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from puna.kv import Budget, Cursor, SequenceTable
from tests.kv.depth import machine_settings
from tests.kv.fake_kv import FakeKv, Shape, Value, expected, int32, value_of
from tests.kv.fake_memory import FakeDevice

pytestmark = pytest.mark.native

WHICH = st.sampled_from([0, 0, 0, 1])
SALTS = st.sampled_from(["", "", "", "salt"])
# Long common starts, few different tokens: so that texts meet, and part, at any place.
TEXTS = st.builds(
    lambda start, end: [1] * start + end,
    st.integers(0, 60),
    st.lists(st.integers(1, 2), min_size=1, max_size=8),
)
SNAPSHOTS = st.sets(st.integers(0, 4))
CHUNKS = st.sampled_from([1, 7, 16, 40, 100])
WINDOWS = st.sampled_from([2, 9, 16, 17, 18, 33, 50])
WASTE = st.sampled_from([0, 16])
FULL = st.builds(
    Shape, st.just(24), st.sampled_from([64, 128]), st.integers(1, 4), WASTE, st.none(), st.just(False)
)
WINDOWED = st.builds(
    Shape, st.just(24), st.sampled_from([64, 192]), st.integers(1, 3), WASTE, WINDOWS, st.just(False)
)
STATES = st.builds(
    Shape,
    st.sampled_from([4, 24]),
    st.sampled_from([64, 320]),
    st.integers(1, 2),
    WASTE,
    st.none(),
    st.just(True),
)
MODELS = st.one_of(
    st.tuples(FULL),
    st.tuples(FULL, WINDOWED),
    st.tuples(FULL, WINDOWED, WINDOWED),
    st.tuples(FULL, FULL, WINDOWED),
    st.tuples(WINDOWED),
    st.tuples(WINDOWED, WINDOWED),
    st.tuples(FULL, STATES),
    st.tuples(FULL, STATES),
    st.tuples(STATES),
    st.tuples(WINDOWED, STATES),
    st.tuples(FULL, WINDOWED, STATES),
)


@dataclass
class Holder:
    """A sequence. Once it has removed tokens, its KV is no longer what its tokens say, but for the first."""

    kv: FakeKv
    table: SequenceTable
    cursor: Cursor
    salt: str
    tokens: list[int] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    num_genuine: int | None = None
    """Full blocks before what has moved; None: nothing has."""

    @property
    def shifted(self) -> bool:
        return self.num_genuine is not None

    def record(self, tail: bool, num_tokens: int | None = None) -> None:
        """Also of what was shifted: the tree must not take it."""
        record = self.kv.tree.record_tail if tail else self.kv.tree.record
        record(self.cursor, self.table, int32(self.tokens[:num_tokens]))

    def snapshot(self) -> None:
        if self.kv.states is not None and self.table.state is not None:
            end = self.table.state_position
            self.kv.tree.snapshot(self.cursor, self.table, int32(self.tokens[:end]))

    def compute(self, begin: int, chunk: int, snapshots: set[int]) -> bool:
        """Steps over the tokens behind the first `begin`; False: there is no room. snapshots: the chunks
        behind which one is taken.
        """
        end = begin
        for number in range(len(self.tokens)):
            if end == len(self.tokens):
                break
            begin, end = end, min(end + chunk, len(self.tokens))
            if not self.table.grow(end, begin):
                return False
            self.kv.step(self.table, self.values[:end], begin)
            self.record(False, end)
            if number in snapshots:
                self.snapshot()
            self.table.slide(end)
        return True


class CacheMachine(RuleBasedStateMachine):
    """Two models on one budget that is far too small, and on one device."""

    @initialize(
        limit=st.integers(12, 60),
        one=MODELS,
        two=MODELS,
        device_limit=st.sampled_from([None, None, 10, 30]),
    )
    def begin(
        self, limit: int, one: tuple[Shape, ...], two: tuple[Shape, ...], device_limit: int | None
    ) -> None:
        self.budget = Budget(limit * 64)
        self.most_bytes = 0
        self.device = FakeDevice(1 << 40 if device_limit is None else device_limit * 64)
        self.kvs = [FakeKv(budget=self.budget, shapes=shapes, device=self.device) for shapes in (one, two)]
        self.holders: list[Holder] = []

    def pick(self, data: st.DataObject) -> Holder:
        return self.holders[data.draw(st.integers(0, len(self.holders) - 1))]

    @rule(
        which=WHICH,
        text=TEXTS,
        salt=SALTS,
        tail=st.booleans(),
        reuse=st.integers(0, 3),
        chunk=CHUNKS,
        keeps_all=st.sampled_from([False, False, True]),
        snapshots=SNAPSHOTS,
    )
    def arrive(
        self,
        which: int,
        text: list[int],
        salt: str,
        tail: bool,
        reuse: int,
        chunk: int,
        keeps_all: bool,
        snapshots: set[int],
    ) -> None:
        """Reuses some of what is there and computes the rest, or leaves if there is no room."""
        kv = self.kvs[which]
        table = kv.table(keeps_all=keeps_all)
        holder = Holder(kv, table, kv.tree.start(salt), salt, text, expected(text, salt))
        limit = len(text) - 1 if reuse else 0
        covered = kv.tree.follow(holder.cursor, table, int32(text), limit)
        kv.require(table, holder.values[:covered])
        assert covered < len(text)
        assert table.can_resume(covered)
        assert not kv.windows or covered <= holder.cursor.num_matched or kv.states is None
        if reuse > 1:
            covered += kv.kv.copy_partial(holder.cursor, table, int32(text), limit)
            assert covered < len(text)
            kv.require(table, holder.values[:covered])
        if holder.compute(covered, chunk, snapshots):
            self.holders.append(holder)
            holder.record(tail)
        else:
            kv.release(table)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), text=TEXTS, chunk=CHUNKS, snapshots=SNAPSHOTS)
    def catch_up(self, data: st.DataObject, text: list[int], chunk: int, snapshots: set[int]) -> None:
        """Goes on behind a later snapshot that others have taken meanwhile, in place of what it has."""
        holder = self.pick(data)
        if holder.kv.states is None:
            return
        before, holder.tokens = len(holder.tokens), [*holder.tokens, *text]
        holder.values = expected(holder.tokens, holder.salt)
        tokens = int32(holder.tokens)
        covered = holder.kv.tree.follow(holder.cursor, holder.table, tokens, len(tokens) - 1)
        assert before <= covered < len(tokens)
        holder.kv.require(holder.table, holder.values[:covered])
        if not holder.compute(covered, chunk, snapshots):
            self.holders.remove(holder)
            holder.kv.release(holder.table)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), chunk=CHUNKS)
    def fail(self, data: st.DataObject, chunk: int) -> None:
        """A step fails; a state that it was to write in place is gone, and the sequence starts over."""
        holder = self.pick(data)
        table, num_tokens = holder.table, len(holder.values)
        if not table.grow(num_tokens + 1):
            return
        table.failed()
        if table.state_position < 0:
            assert not table.can_resume(num_tokens)
            table.release()
            holder.cursor = holder.kv.tree.start(holder.salt)
            if not holder.compute(0, chunk, set()):
                self.holders.remove(holder)
                holder.kv.release(table)
        else:
            table.truncate(num_tokens)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), where=st.integers(0, 5))
    def age(self, data: st.DataObject, where: int) -> None:
        """All snapshots of a path are found; one of them becomes the first to go."""
        holder = self.pick(data)
        if holder.kv.states is None:
            return
        tree, tokens = holder.kv.tree, int32(holder.tokens)
        positions = tree.snapshots(holder.cursor, tokens)
        assert positions == sorted(set(positions))
        assert not positions or 0 < positions[0] <= positions[-1] <= len(tokens)
        if positions:
            position = positions[where % len(positions)]
            if tree.age(holder.cursor, tokens, position):
                holder.kv.kv.blocks.evict(len(holder.kv.windows))
                assert position not in tree.snapshots(holder.cursor, tokens)

    @rule(which=WHICH, text=TEXTS, salt=SALTS)
    def restore(self, which: int, text: list[int], salt: str) -> None:
        """KV comes from elsewhere: of windows only what the token behind the last sees."""
        kv, num_tokens = self.kvs[which], len(text) // 16 * 16
        table, cursor = kv.table(), kv.tree.start(salt)
        covered = kv.tree.follow(cursor, table, int32(text), num_tokens)
        if covered < num_tokens and table.grow(num_tokens, num_tokens):
            values = expected(text[:num_tokens], salt)
            kv.fill(table, values, covered)
            if kv.states is None:
                kv.tree.record(cursor, table, int32(text[:num_tokens]))
            else:
                kv.fill_state(table, values)
                kv.tree.snapshot(cursor, table, int32(text[:num_tokens]))
            assert kv.tree.follow(kv.tree.start(salt), kv.table(), int32(text), num_tokens) == num_tokens
            kv.release(kv.tables[-1])
        kv.release(table)

    @precondition(lambda self: self.holders)
    @rule(
        data=st.data(),
        tokens=st.lists(st.integers(1, 2), min_size=1, max_size=20),
        tail=st.booleans(),
        chunk=CHUNKS,
        snapshots=SNAPSHOTS,
    )
    def append(
        self, data: st.DataObject, tokens: list[int], tail: bool, chunk: int, snapshots: set[int]
    ) -> None:
        holder = self.pick(data)
        begin = len(holder.values)
        for token in tokens:
            holder.tokens.append(token)
            holder.values.append(value_of([*holder.tokens, *[0] * holder.shifted], holder.salt))
        if holder.compute(begin, chunk, snapshots):
            holder.record(tail)
        else:
            self.holders.remove(holder)
            holder.kv.release(holder.table)

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
        if not holder.table.can_resume(count):
            assert any(kv.windows) or kv.states is not None
            with pytest.raises(AssertionError, match="without what its next token sees"):
                holder.table.fork(count)
            return
        if table := holder.table.fork(count):
            kv.tables.append(table)
            fork = Holder(
                kv,
                table,
                kv.tree.start(holder.salt),
                holder.salt,
                holder.tokens[:count],
                holder.values[:count],
                None if holder.num_genuine is None or count <= holder.num_genuine else holder.num_genuine,
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
        before = [array.tolist() for array in holder.table.arrays()]
        if holder.table.remove(begin, end, num_tokens):
            assert holder.kv.states is None
            moved = [(content, rotation + begin - end) for content, rotation in holder.values[end:]]
            holder.values[begin:] = moved
            del holder.tokens[begin:end]
            if end < num_tokens:
                genuine = begin // 16 * 16
                holder.num_genuine = (
                    genuine if holder.num_genuine is None else min(holder.num_genuine, genuine)
                )
            elif holder.num_genuine is not None and begin <= holder.num_genuine:
                holder.num_genuine = None
            holder.record(tail=True)
        else:
            assert [array.tolist() for array in holder.table.arrays()] == before

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), tail=st.booleans(), snapshot=st.booleans())
    def leave(self, data: st.DataObject, tail: bool, snapshot: bool) -> None:
        holder = self.pick(data)
        holder.record(tail)
        if snapshot:
            holder.snapshot()
        self.holders = [other for other in self.holders if other is not holder]
        holder.kv.release(holder.table)

    @rule(which=WHICH, salt=SALTS, one=TEXTS, two=TEXTS)
    def equal_keys_are_equal_prefixes(self, which: int, salt: str, one: list[int], two: list[int]) -> None:
        (key, text), (other_key, other_text) = (self.next_block(self.kvs[which], salt, t) for t in (one, two))
        assert (key == other_key) == (text == other_text)

    def next_block(self, kv: FakeKv, salt: str, text: list[int]) -> tuple[Hashable, list[int]]:
        """The key of what must be computed next, and the tokens up to its end."""
        cursor, table = kv.tree.start(salt), kv.kv.new_table()
        covered = kv.tree.follow(cursor, table, int32(text), len(text))
        kv.require(table, expected(text[:covered], salt))
        table.release()
        key = kv.tree.next_key(cursor, int32(text))
        return key, text[: cursor.num_blocks * 16 + 16]

    @rule(which=WHICH)
    def have_blocks_for_a_while(self, which: int) -> None:
        kv = self.kvs[which]
        nodes = kv.tree.list_nodes().next(8) or []
        for group in range(len(kv.windows)):
            blocks = [node.blocks[group] for node in nodes if node.blocks[group] >= 0]
            kv.kv.blocks.retain(group, blocks)
            kv.kv.blocks.release(group, blocks)
        kv.tree.restore_order(nodes)

    @rule(which=WHICH, data=st.data())
    def list_nodes(self, which: int, data: st.DataObject) -> None:
        """All that is known is listed, nothing twice, and nothing before what it builds on."""
        kv = self.kvs[which]
        listing = kv.tree.list_nodes()
        listed: list[int] = []
        while (some := listing.next(data.draw(st.integers(1, 4)))) is not None:
            for node in some:
                assert node.number not in listed
                assert isinstance(node.parent, str) or node.parent in listed
                listed.append(node.number)
        assert len(listed) >= kv.pool().num_cached
        assert kv.states is None or len(listed) >= kv.pool(len(kv.windows)).num_cached

    @rule(which=WHICH, drop=st.integers(0, 3))
    def idle(self, which: int, drop: int) -> None:
        kv = self.kvs[which].kv
        if drop == 3:
            assert not kv.drop_cached()
            assert kv.cached_bytes == 0
        assert not kv.trim()
        assert kv.spare_bytes == 0

    @rule(limit=st.integers(0, 60), memory_limit=st.integers(0, 80))
    def limit(self, limit: int, memory_limit: int) -> None:
        self.budget.set_limits(limit * 64, memory_limit * 64)

    @rule(blocks=st.sampled_from([5, 20, 1 << 30]))
    def device_limit(self, blocks: int) -> None:
        """Others take memory of the device, or give some back."""
        self.device.most_bytes = blocks * 64

    @rule(num_bytes=st.integers(0, 1000))
    def lease(self, num_bytes: int) -> None:
        self.budget.lease(num_bytes)

    @rule()
    def end_leases(self) -> None:
        self.budget.end_lease(self.budget.leased_bytes)

    @rule(which=WHICH, num_bytes=st.integers(0, 800))
    def guarantee(self, which: int, num_bytes: int) -> None:
        self.budget.set_guarantee(self.kvs[which].kv, num_bytes)

    @rule()
    def pressure(self) -> None:
        self.budget.evict_older_half()
        self.budget.trim()

    @rule(which=WHICH, data=st.data())
    def acquisition_is_all_or_nothing(self, which: int, data: st.DataObject) -> None:
        kv = self.kvs[which]
        num_groups = len(kv.memories)
        counts = data.draw(st.lists(st.integers(0, 12), min_size=num_groups, max_size=num_groups))
        before = [kv.pool(group).num_used for group in range(num_groups)]
        blocks = kv.kv.blocks.acquire(counts)
        used = [kv.pool(group).num_used - before[group] for group in range(num_groups)]
        if blocks is None:
            assert used == [0] * num_groups
            return
        assert used == counts == [len(set(some)) for some in blocks]
        for group, some in enumerate(blocks):
            kv.kv.blocks.release(group, some)
        again = kv.kv.blocks.acquire(counts)
        assert again is not None, "what was there a moment ago"
        for group, some in enumerate(again):
            kv.kv.blocks.release(group, some)

    @invariant()
    def everyone_reads_their_own(self) -> None:
        for holder in getattr(self, "holders", []):
            holder.kv.require(holder.table, holder.values)

    @invariant()
    def the_books_balance(self) -> None:
        if not hasattr(self, "kvs"):
            return
        for kv in self.kvs:
            kv.check()
            kv.mark_in_use()
        committed = sum(kv.kv.committed_bytes for kv in self.kvs)
        total = committed + self.budget.leased_bytes
        self.most_bytes = max(self.budget.limit_bytes, min(self.most_bytes, total))
        assert committed == self.budget.committed_bytes == self.device.allocated_bytes
        assert total <= self.most_bytes, "more than the limit, and than there was when it was lowered"
        self.budget.check()

    def teardown(self) -> None:
        for kv in getattr(self, "kvs", []):
            for table in kv.tables:
                table.release()
            kv.mark_in_use()
            assert kv.kv.used_bytes == 0
            kv.kv.check()
            kv.kv.close()
        if hasattr(self, "budget"):
            assert self.budget.committed_bytes == self.device.allocated_bytes == 0


TestCache = CacheMachine.TestCase
TestCache.settings = machine_settings(150, 50)
