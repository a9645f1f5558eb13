"""Blocks never leak, never have two owners by accident, and their memory never exceeds the budget."""

from __future__ import annotations

import gc
import weakref

import pytest

from puna.backends.base import DeviceOutOfMemory, KvGroup
from puna.kv import Budget, ModelKv
from tests.kv.fake_kv import FakeKv, Shape, expected, int32
from tests.kv.fake_memory import FakeDevice, FakeMemory

pytestmark = pytest.mark.native


def new_kv(*memories: FakeMemory, budget: Budget | None = None, window: int | None = None) -> ModelKv:
    """Groups behind the first have windows, if that is given."""
    budget = budget or Budget(sum(memory.num_blocks * memory.block_bytes for memory in memories))
    groups = [
        KvGroup(num_layers=1, block_bytes=memory.block_bytes, window=window if i else None)
        for i, memory in enumerate(memories)
    ]
    return ModelKv(groups, memories, budget)


def acquire(kv: ModelKv, *counts: int) -> list[list[int]] | None:
    return kv.blocks.acquire(counts)


def taken(kv: ModelKv, count: int) -> list[int]:
    blocks = kv.blocks.acquire([count])
    assert blocks is not None
    return blocks[0]


def test_the_lowest_free_block_is_used_first():
    kv = new_kv(FakeMemory(8))
    first, second, third = taken(kv, 3)
    kv.blocks.release(0, [first])
    kv.blocks.release(0, [second])
    assert taken(kv, 2) == [first, second]
    assert kv.used_bytes == 3 * 64
    assert third not in taken(kv, 5)
    kv.check()


def test_acquiring_is_all_or_nothing_over_all_groups():
    kv = new_kv(FakeMemory(4), FakeMemory(4, block_bytes=32), budget=Budget(4 * 64))
    assert acquire(kv, 2, 2) == [[0, 1], [0, 1]]
    assert acquire(kv, 1, 1) is None
    assert kv.used_bytes == 2 * 64 + 2 * 32
    assert acquire(kv, 0, 0) == [[], []]
    assert acquire(kv, 0, 2) == [[], [2, 3]]
    kv.check()


def test_a_shared_block_is_free_after_its_last_owner():
    kv = new_kv(FakeMemory(1))
    blocks = taken(kv, 1)
    kv.blocks.retain(0, blocks)
    kv.blocks.release(0, blocks)
    assert acquire(kv, 1) is None
    kv.blocks.release(0, blocks)
    assert taken(kv, 1) == blocks


def test_trim_gives_the_memory_of_free_blocks_back():
    memory, budget = FakeMemory(4), Budget(4 * 64)
    kv = new_kv(memory, budget=budget)
    kept, freed = taken(kv, 2)
    kv.blocks.release(0, [freed])
    assert budget.committed_bytes == 2 * 64
    assert not kv.trim()
    assert (memory.released, budget.committed_bytes) == ([freed], 64)
    assert taken(kv, 1) == [freed]
    kv.blocks.release(0, [kept, freed])
    kv.close()
    assert (memory.allocated, memory.closed, budget.committed_bytes) == (set(), True, 0)


def test_no_more_is_trimmed_than_asked_for():
    memory = FakeMemory(10, extent_blocks=2)
    kv = new_kv(memory)
    kv.blocks.release(0, taken(kv, 10))
    assert not kv.trim(3 * 64)
    assert memory.released == [3, 4]
    assert kv.spare_bytes == 3 * 2 * 64


def test_the_budget_bounds_all_models_together():
    budget = Budget(10 * 64)
    a = new_kv(FakeMemory(10), budget=budget)
    b = new_kv(FakeMemory(5, block_bytes=128), budget=budget)
    taken(a, 6)
    assert (a.available_bytes, b.available_bytes) == (4 * 64, 2 * 128)
    assert acquire(b, 3) is None
    taken(b, 2)
    assert acquire(a, 1) is None


def test_spare_memory_of_one_model_is_there_for_the_others():
    budget, memory = Budget(10 * 64), FakeMemory(10)
    a = new_kv(memory, budget=budget)
    b = new_kv(FakeMemory(5, block_bytes=128), budget=budget)
    a.blocks.release(0, taken(a, 10))
    assert memory.released == []
    assert b.available_bytes == 5 * 128
    taken(b, 5)
    assert len(memory.released) == 10
    assert a.available_bytes == 0


def test_no_more_spare_memory_is_taken_than_needed():
    budget = Budget(10 * 64)
    models = [new_kv(FakeMemory(10), budget=budget) for _ in range(3)]
    for kv in models[:2]:
        kv.blocks.release(0, taken(kv, 4))
    taken(models[2], 5)
    assert [kv.spare_bytes for kv in models] == [64, 4 * 64, 0]


def test_spare_memory_of_one_group_is_there_for_the_others():
    kv = new_kv(FakeMemory(10), FakeMemory(10), budget=Budget(10 * 64))
    blocks = acquire(kv, 8, 1)
    assert blocks
    kv.blocks.release(0, blocks[0])
    assert acquire(kv, 2, 6) is not None
    assert kv.committed_bytes <= 10 * 64
    assert acquire(kv, 2, 0) is None
    kv.check()


def test_cached_content_of_one_group_makes_way_for_another():
    kv = FakeKv(budget=Budget(8 * 64), shapes=[Shape(8, 64), Shape(8, 64, window=17)])
    table, tokens = kv.table(), list(range(64))
    assert table.grow(64)
    kv.compute(table, tokens)
    kv.tree.record(kv.tree.start(""), table, int32(tokens))
    table.slide(64)
    kv.release(table)
    assert acquire(kv.kv, 0, 7) is not None
    assert acquire(kv.kv, 1, 1) is None
    assert kv.kv.cached_bytes == 64, "the beginning, which was released last"
    kv.kv.check()


def test_extents_are_committed_and_given_back_whole():
    memory, budget = FakeMemory(12, extent_blocks=4, waste_bytes=20), Budget(1000)
    kv = new_kv(memory, budget=budget)
    blocks = taken(kv, 6)
    assert blocks == [0, 1, 2, 3, 4, 5]
    assert budget.committed_bytes == kv.committed_bytes == 3 * (4 * 64 + 20), "and one ahead"
    assert memory.fetched == [2]
    kv.blocks.release(0, blocks[:3])
    kv.trim()
    assert memory.released == [2]
    kv.blocks.release(0, blocks[3:])
    kv.trim()
    assert sorted(memory.released) == [0, 1, 2]
    assert budget.committed_bytes == kv.spare_bytes == 0
    kv.check()


def test_nothing_is_fetched_ahead_at_the_cost_of_others():
    memory, budget = FakeMemory(12, extent_blocks=4), Budget(2 * 4 * 64)
    other = new_kv(FakeMemory(4, extent_blocks=4), budget=budget)
    other.blocks.release(0, taken(other, 1))
    kv = new_kv(memory, budget=budget)
    taken(kv, 4)
    assert (memory.fetched, budget.committed_bytes) == ([], 2 * 4 * 64)
    taken(kv, 1)
    assert other.committed_bytes == 0, "what the other has spare is there when it is needed"


def test_the_last_extent_may_be_short():
    kv = new_kv(FakeMemory(10, extent_blocks=4), budget=Budget(10_000))
    assert acquire(kv, 11) is None
    assert taken(kv, 10) == list(range(10))
    kv.check()


def test_a_device_that_refuses_counts_as_short_of_memory():
    device, budget = FakeDevice(4 * 64), Budget(100 * 64)
    kv = new_kv(FakeMemory(50, device=device), FakeMemory(50, device=device), budget=budget)
    assert acquire(kv, 3, 3) is None
    assert (kv.used_bytes, budget.committed_bytes) == (0, device.allocated_bytes)
    assert "more than the device has left" in kv.describe_need(64)
    assert kv.available_bytes == budget.committed_bytes, "nothing fresh"
    assert acquire(kv, 2, 2) is not None
    device.most_bytes = 10 * 64
    assert acquire(kv, 2, 2) is not None, "others have made room"
    kv.check()


def test_a_device_that_refuses_gets_back_what_others_can_do_without():
    device, budget = FakeDevice(6 * 64), Budget(100 * 64)
    other = new_kv(FakeMemory(50, device=device), budget=budget)
    other.blocks.release(0, taken(other, 4))
    kv = new_kv(FakeMemory(50, device=device), budget=budget)
    taken(kv, 5)
    assert other.committed_bytes == 0
    assert budget.committed_bytes == device.allocated_bytes


@pytest.mark.parametrize("misuse", ["release", "retain"])
def test_misuse_of_a_free_block_is_caught(misuse: str):
    kv = new_kv(FakeMemory(2))
    blocks = taken(kv, 1)
    kv.blocks.release(0, blocks)
    for block in (*blocks, 99, -1):
        with pytest.raises(AssertionError, match=f"{misuse} of free block"):
            getattr(kv.blocks, misuse)(0, [block])


def test_closing_with_blocks_in_use_is_caught():
    kv = new_kv(FakeMemory(2))
    taken(kv, 1)
    with pytest.raises(AssertionError, match="1 blocks in use"):
        kv.close()


def test_a_static_model_has_all_its_memory_and_keeps_it():
    memory, budget = FakeMemory(6, extent_blocks=2), Budget(10 * 64)
    kv = new_kv(memory, budget=budget)
    kv.make_static()
    assert (memory.populated, budget.committed_bytes) == ([0, 1, 2], 6 * 64)
    other = new_kv(FakeMemory(10), budget=budget)
    assert (kv.most_bytes, other.available_bytes) == (6 * 64, 4 * 64)
    blocks = taken(kv, 6)
    assert acquire(kv, 1) is None
    kv.blocks.release(0, blocks)
    kv.trim()
    assert (kv.spare_bytes, kv.reclaimable_bytes, other.available_bytes) == (0, 0, 4 * 64)
    assert acquire(other, 5) is None
    kv.check()
    kv.close()
    assert (memory.allocated, other.available_bytes) == (set(), 10 * 64)


def test_a_static_model_that_the_device_has_no_memory_for():
    device, budget = FakeDevice(5 * 64), Budget(10 * 64)
    kv = new_kv(FakeMemory(6, device=device), budget=budget)
    with pytest.raises(DeviceOutOfMemory):
        kv.make_static()
    kv.close()
    assert budget.committed_bytes == device.allocated_bytes == 0


def test_what_is_closed_can_be_collected():
    kv = FakeKv(8)
    kv.release(kv.table())
    kv.kv.close()
    closed = weakref.ref(kv.kv)
    del kv
    gc.collect()
    assert closed() is None


def windowed(window: int = 33) -> FakeKv:
    return FakeKv(shapes=[Shape(64, 64), Shape(64, 64, window=window)])


def computed(kv: FakeKv, num_tokens: int) -> list[int]:
    """A text of which everything is recorded and released."""
    table, tokens = kv.table(), list(range(num_tokens))
    assert table.grow(num_tokens)
    kv.compute(table, tokens)
    kv.tree.record_tail(kv.tree.start(""), table, int32(tokens))
    table.slide(num_tokens)
    kv.release(table)
    return tokens


def test_a_sequence_holds_what_its_windows_reach():
    kv = windowed(33)
    table = kv.table()
    assert table.grow(100)
    kv.compute(table, range(100))
    table.slide(99)
    assert [table.first_held(group) for group in range(2)] == [0, 4], "token 99 sees 67 and later"
    assert table.held_bytes == (7 + 3) * 64
    assert table.missing_bytes(100) == 0
    assert table.missing_bytes(113) == 64, "the window moves on"
    assert table.can_resume(96)
    assert not table.can_resume(95)
    kv.check()


def test_a_prefix_is_found_up_to_where_windows_are_whole():
    kv = windowed(33)
    tokens = computed(kv, 128)
    lost = followed_blocks(kv, tokens)[1][-2]
    kv.tree.forget(lost, 1)
    table, cursor = kv.table(), kv.tree.start("")
    assert kv.tree.follow(cursor, table, int32(tokens), 128) == 6 * 16
    assert table.first_held(1) == 4
    kv.require(table, expected(tokens[:96]))
    # What is computed again fills the hole.
    assert table.grow(128)
    kv.compute(table, tokens, 96)
    kv.tree.record(cursor, table, int32(tokens))
    kv.release(table)
    assert [len(blocks) for blocks in followed_blocks(kv, tokens)] == [8, 2]
    kv.check()


def followed_blocks(kv: FakeKv, tokens: list[int]) -> list[list[int]]:
    table = kv.table()
    kv.tree.follow(kv.tree.start(""), table, int32(tokens), len(tokens))
    blocks = [table.blocks(group) for group in range(2)]
    kv.release(table)
    return blocks


def test_a_context_shift_keeps_all_where_a_window_is_wider_than_what_is_left():
    kv = windowed(65)
    for keeps_all in (False, True):
        table = kv.table(keeps_all=keeps_all)
        assert table.grow(100)
        kv.compute(table, range(100))
        table.slide(100)
        assert table.remove(20, 80, 100) == keeps_all
    kv.check()


def test_partial_blocks_are_copied_in_all_groups():
    kv = windowed()
    tokens = computed(kv, 60)
    table, cursor = kv.table(), kv.tree.start("")
    assert kv.tree.follow(cursor, table, int32(tokens), 58) == 48
    assert kv.kv.copy_partial(cursor, table, int32(tokens), 58) == 10
    kv.require(table, expected(tokens[:58]))
    kv.check()


def test_only_windows_leave_no_nodes_behind():
    kv = FakeKv(shapes=[Shape(12, 64, window=17)], budget=Budget(12 * 64))
    for text in range(20):
        table = kv.table()
        tokens = [text, *range(100)]
        cursor = kv.tree.start("")
        for end in range(16, 97, 16):
            assert table.grow(end)
            kv.compute(table, tokens[:end], end - 16)
            kv.tree.record(cursor, table, int32(tokens[:end]))
            table.slide(end)
        kv.release(table)
        kv.check()
    assert kv.tree.num_nodes <= 6 * 6
    assert not kv.kv.drop_cached()
    assert kv.tree.num_nodes == 0


def test_much_is_dropped_and_trimmed_in_several_calls():
    kv = FakeKv(shapes=[Shape(6000, 64), Shape(6000, 64, window=17)])
    table, tokens = kv.table(), list(range(16 * 6000))
    assert table.grow(len(tokens))
    kv.tree.record(kv.tree.start(""), table, int32(tokens))
    kv.release(table)
    num_calls = 1
    while kv.kv.drop_cached():
        num_calls += 1
    assert num_calls > 1
    assert kv.kv.cached_bytes == kv.tree.num_nodes == 0
    assert kv.kv.trim()
    while kv.kv.trim():
        pass
    assert kv.kv.committed_bytes == 0


def test_nodes_are_listed_some_at_a_time_last_used_first():
    kv = windowed()
    texts = [[n, *range(47)] for n in range(3)]
    for text in texts:
        table, cursor = kv.table(), kv.tree.start("salt", to_disk=text[0] != 1)
        assert table.grow(48)
        kv.compute(table, text, salt="salt")
        kv.tree.record(cursor, table, int32(text))
        kv.release(table)
    listing = kv.tree.list_nodes()
    nodes = []
    while (some := listing.next(2)) is not None:
        assert len(some) <= 4
        nodes += some
    wanted = [
        int32(text[start : start + 16]).tobytes()
        for n in (2, 0)
        for text in [texts[n]]
        for start in (0, 16, 32)
    ]
    assert [node.tokens for node in nodes] == wanted
    assert [node.parent for node in nodes[:3]] == ["salt", nodes[0].number, nodes[1].number]
    assert nodes[0].following == nodes[1].tokens
    assert nodes[2].following == b""
    assert all(len(node.blocks) == 2 and min(node.blocks) >= 0 for node in nodes)
