"""States of recurrent layers: which block a step reads and which it writes, and what is found again."""

from __future__ import annotations

import pytest

from puna.kv import Cursor, SequenceTable, gather_tables
from tests.kv.fake_kv import FakeKv, Shape, expected, int32

pytestmark = pytest.mark.native

STATE = 640
"""Bytes, of a model whose blocks of tokens have 64."""


def model(*windows: int | None, limit: int = 1 << 20) -> FakeKv:
    shapes = [Shape(window=window) for window in windows or [None]]
    kv = FakeKv(shapes=[*shapes, Shape(block_bytes=STATE, is_state=True)])
    kv.budget.set_limits(limit, 1 << 40)
    return kv


def compute(kv: FakeKv, table: SequenceTable, tokens: list[int]) -> bool:
    """A step over all tokens behind the table's state."""
    begin = table.state_position
    if not table.grow(len(tokens), begin):
        return False
    kv.step(table, expected(tokens), begin)
    return True


def arrive(kv: FakeKv, tokens: list[int]) -> tuple[SequenceTable, Cursor, int]:
    """A new sequence, with what is known of it, which is checked."""
    table, cursor = kv.table(), kv.tree.start("")
    covered = kv.tree.follow(cursor, table, int32(tokens), len(tokens) - 1)
    kv.require(table, expected(tokens[:covered]))
    assert table.can_resume(covered)
    return table, cursor, covered


def known(kv: FakeKv, tokens: list[int], at: list[int]) -> SequenceTable:
    """A sequence with snapshots at these positions."""
    table, cursor, _ = arrive(kv, tokens)
    for end in sorted({*at, len(tokens)}):
        assert end <= table.state_position or compute(kv, table, tokens[:end])
        if end in at:
            kv.tree.snapshot(cursor, table, int32(tokens[:end]))
    kv.tree.record_tail(cursor, table, int32(tokens))
    kv.check()
    return table


TEXT = [token % 7 for token in range(100)]


def test_steps_in_place() -> None:
    kv = model()
    table = kv.table()
    assert table.state is None
    assert table.needs_state_block
    assert compute(kv, table, TEXT[:5])
    block = table.state
    assert gather_tables([table])[-1].tolist() == [[block, block]]
    assert compute(kv, table, TEXT[:40])
    assert (table.state, table.state_position) == (block, 40)
    assert table.held_bytes == 3 * 64 + STATE


def test_fork_writes_elsewhere() -> None:
    kv = model()
    table = kv.table()
    compute(kv, table, TEXT[:20])
    fork = table.fork(20)
    assert fork is not None
    kv.tables.append(fork)
    assert table.state == fork.state
    for one, text in ((fork, [*TEXT[:20], 8]), (table, [*TEXT[:20], 9])):
        assert one.needs_state_block == (one is fork)  # the other has it alone by then
        assert compute(kv, one, text)
        kv.require(one, expected(text))
    assert table.state != fork.state


@pytest.mark.parametrize("position", [5, 16, 37, 96, 99])
def test_snapshot_is_found(position: int) -> None:
    kv = model()
    kv.release(known(kv, TEXT, [position]))
    table, _, covered = arrive(kv, [*TEXT, 1])
    assert covered == position
    assert compute(kv, table, [*TEXT, 1])
    kv.require(table, expected([*TEXT, 1]))
    kv.check()
    assert arrive(kv, [*TEXT[:position], 8])[2] == position
    assert arrive(kv, [*TEXT[: position - 1], 8, 8])[2] == 0


def test_furthest_snapshot_is_found() -> None:
    kv = model()
    kv.release(known(kv, TEXT, [5, 16, 37, 96]))
    _, cursor, covered = arrive(kv, [*TEXT[:60], 8])
    assert (covered, cursor.num_matched) == (37, 60)
    assert arrive(kv, [*TEXT[:37], 8])[2] == 37
    assert arrive(kv, TEXT[:37])[2] == 16
    assert arrive(kv, TEXT[:16])[2] == 5


def test_snapshots_are_listed_and_aged() -> None:
    kv = model()
    table, cursor, _ = arrive(kv, TEXT)
    for end in (7, 32, 50):
        compute(kv, table, TEXT[:end])
        kv.tree.snapshot(cursor, table, int32(TEXT[:end]))
    compute(kv, table, TEXT[:51])
    tokens = int32(TEXT[:51])
    assert kv.tree.snapshots(cursor, tokens) == [7, 32, 50]
    assert not kv.tree.age(cursor, tokens, 8)
    assert kv.tree.age(cursor, tokens, 50)
    kv.kv.evict(STATE, None)
    assert kv.tree.snapshots(cursor, tokens) == [7, 32]
    kv.kv.evict(STATE, None)
    assert kv.tree.snapshots(cursor, tokens) == [32]
    kv.check()


def test_known_snapshot_is_taken() -> None:
    kv = model()
    one = known(kv, TEXT, [50])
    two, cursor = kv.table(), kv.tree.start("")
    compute(kv, two, TEXT[:50])
    kv.tree.snapshot(cursor, two, int32(TEXT[:50]))
    assert kv.pool(1).num_used == 2
    assert kv.pool(1).num_cached == 0
    assert two.state != one.state
    kv.require(two, expected(TEXT[:50]))


def test_one_state_is_enough_memory() -> None:
    """A table goes on in place of its own snapshot if there is no other way."""
    kv = model(limit=64 * 4 + STATE)
    table, cursor, _ = arrive(kv, TEXT)
    for end in range(10, 60, 10):
        assert compute(kv, table, TEXT[:end])
        kv.tree.snapshot(cursor, table, int32(TEXT[:end]))
        assert table.missing_bytes(end + 1) <= 64
    kv.require(table, expected(TEXT[:50]))
    assert kv.kv.bytes_for(64) == kv.kv.committed_bytes == 64 * 4 + STATE
    assert kv.kv.tokens_within(64 * 4 + STATE) == 64
    assert kv.kv.tokens_within(64 * 4 + STATE - 1) == 48
    assert kv.kv.tokens_within(STATE) == 0
    fork = table.fork(50)
    assert fork is None  # for lack of a block for its last tokens
    kv.check()


def test_lost_state_starts_over() -> None:
    kv = model()
    table = kv.table()
    compute(kv, table, TEXT[:20])
    assert not table.can_resume(16)
    table.grow(21)
    table.failed()
    assert table.state_position == -1
    assert table.can_resume(0)
    assert not table.can_resume(20)
    table.release()
    assert table.state_position == 0
    assert compute(kv, table, TEXT[:3])
    table.grow(4)
    table.truncate(3)
    kv.require(table, expected(TEXT[:3]))
    assert not table.remove(0, 1, 3)
    table.truncate(2)
    assert table.state_position == -1
    assert kv.pool(1).num_used == 0


def test_failed_step_keeps_a_snapshot() -> None:
    kv = model()
    table = known(kv, TEXT, [100])
    table.grow(101)
    table.failed()
    kv.require(table, expected(TEXT))


def test_layers_of_states_only() -> None:
    kv = FakeKv(shapes=[Shape(block_bytes=STATE, is_state=True)])
    kv.release(known(kv, TEXT, [5, 32, 77]))
    assert kv.tree.num_nodes == 6
    assert arrive(kv, [*TEXT, 1])[2] == 77
    assert arrive(kv, TEXT[:60])[2] == 32
    for table in list(kv.tables):
        kv.release(table)
    kv.kv.drop_cached()
    assert kv.tree.num_nodes == 0
    kv.check()


@pytest.mark.parametrize("extent_blocks", [1, 4])
@pytest.mark.parametrize("state_bytes", [64, 640])
@pytest.mark.parametrize("windows", [(None,), (None, 20)])
def test_no_limit_is_a_cliff(windows: tuple[int | None, ...], state_bytes: int, extent_blocks: int) -> None:
    """What fits by the figures can be computed, with a snapshot behind every step and content of others."""
    shapes = [Shape(extent_blocks=extent_blocks, waste_bytes=8, window=window) for window in windows]
    kv = FakeKv(shapes=[*shapes, Shape(block_bytes=state_bytes, waste_bytes=16, is_state=True)])
    for limit in range(0, 3000, 100):
        kv.budget.set_limits(limit, 1 << 40)
        if kv.kv.is_too_coarse:  # the engine has other memory reserved, then
            continue
        num_tokens = kv.kv.tokens_within(kv.kv.most_bytes)
        text = [limit + token % 3 for token in range(num_tokens)]
        table, cursor = kv.table(), kv.tree.start("")
        for end in range(8, num_tokens + 1, 8):
            assert table.grow(end, end - 8)
            kv.step(table, expected(text[:end]), end - 8)
            kv.tree.snapshot(cursor, table, int32(text[:end]))
            table.slide(end)
        kv.require(table, expected(text[: num_tokens // 8 * 8]))
        kv.check()
        kv.release(table)
        assert kv.kv.available_bytes >= kv.kv.bytes_for(num_tokens)
    assert num_tokens > 200


def test_snapshot_goes_with_the_tokens_before_it() -> None:
    """Whoever computes these again comes by its state, too."""
    kv = model()
    kv.release(known(kv, TEXT[:40], [37]))
    table, cursor, _ = arrive(kv, TEXT[:40])
    assert kv.tree.snapshots(cursor, int32(TEXT[:40])) == [37]
    kv.release(table)
    kv.tree.renew(cursor, int32(TEXT[:40]), 37)
    kv.kv.blocks.evict(0)
    kv.check()
    assert kv.tree.snapshots(cursor, int32(TEXT[:40])) == []
    assert kv.pool(1).num_cached == 0
