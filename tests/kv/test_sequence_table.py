"""A table has exactly the blocks its tokens need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.kv import BlockPool, Budget, SequenceTable
from puna.kv.sequence_table import blocks_for
from tests.kv.fake_memory import FakeMemory

pytestmark = pytest.mark.unit


def new_pool(num_blocks: int) -> BlockPool:
    return BlockPool(FakeMemory(num_blocks), Budget(num_blocks * 64))


@pytest.mark.parametrize(("num_tokens", "expected"), [(0, 0), (1, 1), (16, 1), (17, 2), (160, 10)])
def test_blocks_for(num_tokens: int, expected: int):
    assert blocks_for(num_tokens) == expected


@given(st.lists(st.integers(0, 1000), max_size=20))
def test_array_lists_the_blocks_in_order(sizes: list[int]):
    pool = new_pool(100)
    pool.acquire(3)
    table = SequenceTable(pool)
    for num_tokens in sizes:
        before = table.array.tolist()
        assert table.grow(num_tokens)
        assert table.array[: len(before)].tolist() == before
        assert table.num_blocks == max(blocks_for(num_tokens), len(before))
    assert len(set(table.array.tolist())) == table.num_blocks
    table.release()
    assert (pool.num_used, table.num_blocks) == (3, 0)


def test_growing_too_far_changes_nothing():
    pool = new_pool(4)
    table = SequenceTable(pool)
    assert table.grow(33)
    assert not table.grow(65)
    assert (table.num_blocks, pool.num_used) == (3, 3)
    assert table.grow(64)


def test_the_next_sequence_starts_on_the_same_block():
    pool = new_pool(8)
    table = SequenceTable(pool)
    table.grow(50)
    blocks = table.array.tolist()
    table.release()
    table.grow(50)
    assert table.array.tolist() == blocks
