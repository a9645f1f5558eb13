"""Extents are a few huge pages that blocks nearly fill."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.backends.cpu.kv_memory import HUGE_PAGE_BYTES, plan_extent, plan_state_extent

pytestmark = pytest.mark.unit

GIB = 1 << 30


@pytest.mark.parametrize(
    ("block_bytes", "num_blocks", "num_pages"),
    [(368640, 11, 2), (2 << 20, 1, 1), (2359296, 6, 7), (64, 32768, 1), (184320, 11, 1)],
)
def test_extents_waste_little(block_bytes: int, num_blocks: int, num_pages: int):
    assert plan_extent(block_bytes, GIB) == (num_blocks, num_pages * HUGE_PAGE_BYTES)


def test_where_memory_is_scarce_each_block_is_an_extent():
    assert plan_extent(4096, 100 << 20) == (1, 4096)


@pytest.mark.parametrize(
    ("block_bytes", "room_bytes", "extent_bytes"),
    [
        (49 << 20, 8 * GIB, 50 << 20),
        (48 << 20, 8 * GIB, 48 << 20),
        (160 << 10, 8 * GIB, 160 << 10),
        (3 << 20, 8 * GIB, 3 << 20),
        (49 << 20, 100 << 20, 49 << 20),
    ],
)
def test_a_state_is_an_extent(block_bytes: int, room_bytes: int, extent_bytes: int):
    assert plan_state_extent(block_bytes, room_bytes) == (1, extent_bytes)


@given(st.integers(1, 1 << 19), st.integers(1, 1 << 36))
def test_blocks_always_fit(sixty_fourths: int, limit_bytes: int):
    block_bytes = 64 * sixty_fourths
    extent = plan_extent(block_bytes, limit_bytes)
    assert 0 < extent.num_blocks * block_bytes <= extent.num_bytes
    assert extent.num_blocks * block_bytes >= 0.94 * extent.num_bytes
