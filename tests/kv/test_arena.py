"""An arena reserves address space only; releasing blocks frees exactly their memory."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

from puna._native import Arena, NativeError

pytestmark = pytest.mark.native

PAGE = 4096


def resident_bytes() -> int:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return int(match[1]) * 1024


def test_reserving_far_more_than_the_machine_has_costs_nothing():
    before = resident_bytes()
    arena = Arena(1 << 20, 1 << 20)  # 1 TiB
    assert (arena.num_blocks, arena.block_bytes) == (1 << 20, 1 << 20)
    assert resident_bytes() - before < 1 << 20
    arena.close()


def test_a_released_block_gives_its_memory_back():
    arena = Arena(64, 1 << 20)
    for block in range(64):
        arena.block(block)[:] = 1
    full = resident_bytes()
    arena.release(range(64))
    assert full - resident_bytes() > 60 << 20
    assert not arena.block(13).any()
    arena.close()


@pytest.mark.parametrize("block_bytes", [64, 64 * 37, PAGE, PAGE + 64, 3 * PAGE - 64])
def test_release_leaves_neighbours_untouched(block_bytes: int):
    arena = Arena(40, block_bytes)
    for block in range(40):
        arena.block(block)[:] = block + 1
    released = [3, 4, 5, 9, 0, 39, 20, 4]
    arena.release(np.array(released))
    for block in set(range(40)) - set(released):
        np.testing.assert_array_equal(arena.block(block), block + 1)


def test_committed_extents_have_memory_before_they_are_written():
    arena = Arena(64, 1 << 20, 2, 2 << 20)
    before = resident_bytes()
    arena.block(3)[:] = 7
    arena.commit([0, 1, 4, 31])
    assert resident_bytes() - before >= 4 * (2 << 20)
    assert set(arena.block(3).tolist()) == {7}, "contents stay"
    with pytest.raises(NativeError, match="no extent 32"):
        arena.commit([0, 32])
    arena.close()


def test_blocks_do_not_overlap():
    arena = Arena(3, 128)
    for block in range(3):
        arena.block(block)[:] = block
    assert [set(arena.block(block).tolist()) for block in range(3)] == [{0}, {1}, {2}]


@pytest.mark.parametrize(("extent_blocks", "extent_bytes"), [(1, 128), (3, 512), (7, 896), (5, 1 << 21)])
def test_blocks_lie_in_their_extents(extent_blocks: int, extent_bytes: int):
    arena = Arena(23, 128, extent_blocks, extent_bytes)
    start = arena.block(0).ctypes.data
    for block in range(23):
        expected = block // extent_blocks * extent_bytes + block % extent_blocks * 128
        assert arena.block(block).ctypes.data - start == expected


def test_extents_of_huge_pages_come_when_fetched_and_go_when_released():
    arena = Arena(40, 300 << 10, 20, 6 << 20)
    arena.block(0)[:] = 1
    before = resident_bytes()
    arena.fetch(1)
    while resident_bytes() - before < 5 << 20:
        time.sleep(0.001)
    assert not arena.block(25).any()
    arena.block(39)[:] = 3
    arena.release([1])
    assert resident_bytes() - before < 1 << 20
    assert arena.block(0).all()
    assert not arena.block(39).any()
    arena.fetch(1)
    arena.release([1])
    assert resident_bytes() - before < 1 << 20, "nothing comes after the release"
    arena.close()


def test_a_forked_child_waits_for_no_thread():
    arena = Arena(40, 300 << 10, 20, 6 << 20)
    arena.fetch(1)
    pid = os.fork()
    if pid == 0:
        arena.fetch(0)
        arena.release([1])
        arena.close()
        del arena
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    arena.close()


def test_a_view_survives_close():
    arena = Arena(2, 64)
    view = arena.block(1)
    view[:] = 5
    arena.close()
    arena.close()
    assert view.sum() == 5 * 64
    with pytest.raises(NativeError, match="arena is closed"):
        arena.release([0])
    with pytest.raises(NativeError, match="arena is closed"):
        arena.block(0)


@pytest.mark.parametrize(
    "case",
    [
        (0, 64, "num_blocks is 0"),
        (-1, 64, "num_blocks is -1"),
        (1 << 31, 64, "num_blocks is 2147483648"),
        (1, 0, "block_bytes is 0"),
        (1, 100, "block_bytes is 100"),
        (1, 64, "do not have 2 blocks", 2, 64),
        (1, 64, "do not have 0 blocks", 0, 64),
        (1, 64, "do not have 1 blocks", 1, 100),
        ((1 << 31) - 1, 1 << 40, "do not fit"),
        ((1 << 31) - 1, 1 << 24, "cannot reserve"),
    ],
)
def test_impossible_sizes_are_named(case: tuple):
    num_blocks, block_bytes, message, *extent = case
    with pytest.raises(NativeError, match=message):
        Arena(num_blocks, block_bytes, *extent)


@pytest.mark.parametrize("block", [-1, 4, 1 << 40])
def test_unknown_blocks_are_named(block: int):
    arena = Arena(4, 64)
    with pytest.raises(NativeError, match=f"no extent {block} among 4"):
        arena.release([1, block])
    with pytest.raises(NativeError, match=f"no extent {block} among 4"):
        arena.fetch(block)
    with pytest.raises(NativeError, match=f"no block {block} among 4"):
        arena.block(block)
