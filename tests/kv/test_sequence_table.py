"""A table has exactly the blocks its tokens need; what others hold or know, it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.kv import SequenceTable, gather_tables
from puna.kv.blocks import blocks_for
from tests.kv.fake_kv import FakeKv, expected, int32

pytestmark = pytest.mark.native


@pytest.mark.parametrize(("num_tokens", "expected"), [(0, 0), (1, 1), (16, 1), (17, 2), (160, 10)])
def test_blocks_for(num_tokens: int, expected: int):
    assert blocks_for(num_tokens) == expected


@given(st.lists(st.integers(0, 1000), max_size=20))
def test_array_lists_the_blocks_in_order(sizes: list[int]):
    kv = FakeKv(100)
    kv.kv.blocks.acquire([3])
    table = kv.table()
    for num_tokens in sizes:
        before = table.blocks()
        assert table.grow(num_tokens)
        assert table.blocks()[: len(before)] == before
        assert table.arrays()[0].tolist() == table.blocks()
        assert table.num_blocks == max(blocks_for(num_tokens), len(before))
    assert len(set(table.blocks())) == table.num_blocks
    table.release()
    assert (kv.pool().num_used, table.num_blocks) == (3, 0)


def test_growing_too_far_changes_nothing():
    kv = FakeKv(4)
    table = kv.table()
    assert table.grow(33)
    assert not table.grow(65)
    assert (table.num_blocks, kv.pool().num_used) == (3, 3)
    assert table.grow(64)


def test_the_next_sequence_starts_on_the_same_block():
    kv = FakeKv(8)
    table = kv.table()
    table.grow(50)
    blocks = table.blocks()
    table.release()
    table.grow(50)
    assert table.blocks() == blocks


def test_a_step_gets_the_tables_of_all_its_sequences():
    kv = FakeKv(16)
    tables = [kv.table() for _ in range(3)]
    for table, num_tokens in zip(tables, (40, 0, 17), strict=True):
        assert table.grow(num_tokens)
    (array,) = gather_tables(tables)
    assert array.tolist() == [[0, 1, 2], [0, 0, 0], [3, 4, 0]]
    assert array.dtype == np.int32


def filled(kv: FakeKv, num_tokens: int) -> SequenceTable:
    table = kv.table()
    assert table.grow(num_tokens)
    kv.compute(table, range(num_tokens))
    return table


@pytest.mark.parametrize(
    ("num_tokens", "left"), [(50, 4), (49, 4), (48, 3), (17, 2), (1, 1), (0, 0), (90, 4)]
)
def test_truncation_gives_blocks_wholly_beyond_back(num_tokens: int, left: int):
    kv = FakeKv(8)
    table = filled(kv, 50)
    table.truncate(num_tokens)
    assert (table.num_blocks, kv.pool().num_used) == (left, left)
    assert kv.values(table, min(num_tokens, 50)) == expected(range(min(num_tokens, 50)))


def test_truncation_within_what_others_know_is_caught():
    kv = FakeKv(8)
    table = filled(kv, 50)
    fork = table.fork(32)
    assert fork
    with pytest.raises(AssertionError, match="within shared block 1"):
        table.truncate(20)
    fork.release()
    kv.tree.record_tail(kv.tree.start(""), table, int32(range(50)))
    table.truncate(50)
    with pytest.raises(AssertionError, match="what is recorded of block 3"):
        table.truncate(49)
    table.truncate(32)


@pytest.mark.parametrize(("num_tokens", "num_new"), [(50, 1), (48, 0), (33, 1), (32, 0), (5, 1), (0, 0)])
def test_a_fork_shares_full_blocks_and_copies_the_partial_one(num_tokens: int, num_new: int):
    kv = FakeKv(8)
    table = filled(kv, 50)
    fork = table.fork(num_tokens)
    assert fork
    kv.tables.append(fork)
    assert kv.pool().num_used == 4 + num_new
    assert kv.values(fork, num_tokens) == expected(range(num_tokens))
    # Both go on, each for itself.
    for owner, begin, next_token in ((table, 50, 7), (fork, num_tokens, 9)):
        owner.grow(begin + 1)
        kv.write(owner, begin, (next_token, 0))
    assert kv.values(table, 51) == [*expected(range(50)), (7, 0)]
    assert kv.values(fork, num_tokens + 1) == [*expected(range(num_tokens)), (9, 0)]
    kv.check()


def test_a_fork_without_a_block_for_its_last_tokens_changes_nothing():
    kv = FakeKv(4)
    table = filled(kv, 50)
    assert table.fork(50) is None
    assert max(kv.pool().references().values()) == 1
    assert table.fork(48)


def removed(begin: int, end: int, num_tokens: int) -> list[tuple[object, int]]:
    """What is left of the first `num_tokens` of expected(range(...)), rotated down."""
    values = expected(range(num_tokens))
    return values[:begin] + [(content, begin - end) for content, _ in values[end:]]


REMOVALS = [
    (4, 10, 50),
    (0, 16, 50),
    (0, 1, 50),
    (16, 32, 50),
    (5, 37, 50),
    (20, 50, 50),
    (32, 50, 50),
    (49, 50, 50),
    (0, 50, 50),
    (3, 40, 41),
    (15, 17, 48),
]


@pytest.mark.parametrize(("begin", "end", "num_tokens"), REMOVALS)
@pytest.mark.parametrize("num_shared", [0, 1, 2, 3])
def test_removal_moves_the_rest_down_and_leaves_sharers_alone(
    begin: int, end: int, num_tokens: int, num_shared: int
):
    kv = FakeKv(16)
    table = filled(kv, num_tokens)
    cursor = kv.tree.start("")
    kv.tree.record(cursor, table, int32(range(num_tokens)))
    other = table.fork(16 * min(num_shared, num_tokens // 16))
    assert other
    kv.tables.append(other)
    table.grow(70)  # blocks that hold nothing yet go
    assert table.remove(begin, end, num_tokens)
    left = num_tokens - (end - begin)
    assert kv.values(table, left) == removed(begin, end, num_tokens)
    assert table.num_blocks == blocks_for(left)
    assert kv.values(other, 16 * other.num_blocks) == expected(range(16 * other.num_blocks))
    # What follows can be written, and nobody finds blocks that changed.
    table.grow(left + 1)
    kv.write(table, left, ("next", 0))
    found = kv.table()
    covered = kv.tree.follow(kv.tree.start(""), found, int32(range(num_tokens)), num_tokens)
    assert kv.values(found, covered) == expected(range(covered))
    assert covered >= 16 * other.num_blocks
    kv.check()
    for owner in (table, other, found):
        kv.release(owner)
    kv.check()


def test_removal_without_blocks_for_copies_changes_nothing():
    kv = FakeKv(5)
    table = filled(kv, 50)
    kv.tree.record_tail(kv.tree.start(""), table, int32(range(50)))
    other = table.fork(48)
    assert other
    kv.tables.append(other)
    assert not table.remove(4, 10, 50)
    assert kv.values(table, 50) == expected(range(50))
    assert [kv.tree.num_recorded(block) for block in table.blocks()] == [16, 16, 16, 2]
    assert table.remove(40, 42, 50)
    assert kv.values(table, 48) == removed(40, 42, 50)
    kv.check()


@pytest.mark.parametrize(("begin", "end"), [(3, 3), (-1, 2), (3, 51), (5, 4)])
def test_removal_of_no_tokens_is_caught(begin: int, end: int):
    kv = FakeKv(8)
    with pytest.raises(AssertionError, match="removal of"):
        filled(kv, 50).remove(begin, end, 50)
