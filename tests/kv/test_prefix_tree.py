"""What is found is exactly what was asked for, as much of it as there is, and no more memory than needed."""

from __future__ import annotations

import numpy as np
import pytest

from puna._native import UnsavedNodes
from puna.kv import Budget, Cursor, SequenceTable
from tests.kv.fake_kv import FakeKv, expected, int32

pytestmark = pytest.mark.native

TEXT = list(range(100, 150))


def computed(kv: FakeKv, tokens: list[int], salt: str = "", tail: bool = True) -> SequenceTable:
    """A table with all of the tokens, recorded."""
    table, cursor = kv.table(), kv.tree.start(salt)
    assert table.grow(len(tokens))
    kv.compute(table, tokens, salt=salt)
    if tail:
        kv.tree.record_tail(cursor, table, int32(tokens))
    else:
        kv.tree.record(cursor, table, int32(tokens))
    kv.check()
    return table


def followed(
    kv: FakeKv, tokens: list[int], limit: int | None = None, salt: str = ""
) -> tuple[SequenceTable, Cursor, int]:
    """A new table with what is cached of the tokens; checks what its blocks hold."""
    table, cursor = kv.table(), kv.tree.start(salt)
    covered = kv.tree.follow(cursor, table, int32(tokens), len(tokens) if limit is None else limit)
    assert covered == 16 * cursor.num_blocks == 16 * table.num_blocks
    assert kv.values(table, covered) == expected(tokens[:covered], salt)
    kv.check()
    return table, cursor, covered


def partial(kv: FakeKv, tokens: list[int], limit: int | None = None, salt: str = "") -> int:
    """Tokens that find_partial() adds to what is followed; checks that they are there."""
    table, cursor, covered = followed(kv, tokens, limit, salt)
    found = kv.tree.find_partial(cursor, int32(tokens), len(tokens) if limit is None else limit)
    kv.release(table)
    if found is None:
        return 0
    (block,), count = found
    slots = [kv.memory.get(block, slot) for slot in range(count)]
    assert slots == expected(tokens[: covered + count], salt)[covered:]
    return count


def test_full_blocks_are_shared():
    kv = FakeKv(8)
    owner = computed(kv, TEXT)
    table, _, covered = followed(kv, TEXT)
    assert covered == 48
    assert table.blocks() == owner.blocks()[:3]
    assert [kv.pool().num_references(block) > 1 for block in owner.blocks()] == [True, True, True, False]


@pytest.mark.parametrize(("limit", "covered"), [(50, 48), (48, 48), (47, 32), (32, 32), (15, 0), (0, 0)])
def test_no_more_than_the_limit_is_covered(limit: int, covered: int):
    kv = FakeKv(8)
    computed(kv, TEXT)
    assert followed(kv, TEXT, limit)[2] == covered


@pytest.mark.parametrize("end", ["release", "keep"])
def test_a_prefix_is_found_up_to_the_first_difference(end: str):
    kv = FakeKv(8)
    owner = computed(kv, TEXT)
    if end == "release":
        kv.release(owner)
    assert followed(kv, [*TEXT[:20], 0, *TEXT[21:]])[2] == 16
    assert followed(kv, [0, *TEXT[1:]])[2] == 0
    assert followed(kv, TEXT[16:])[2] == 0  # the same tokens elsewhere are other KV


def test_following_goes_on_where_it_stopped():
    kv = FakeKv(8)
    table, cursor, covered = followed(kv, TEXT)
    assert covered == 0
    computed(kv, TEXT[:32])
    assert kv.tree.follow(cursor, table, int32(TEXT), 50) == 32
    computed(kv, TEXT)
    assert kv.tree.follow(cursor, table, int32(TEXT), 50) == 48
    assert kv.values(table, 48) == expected(TEXT[:48])
    kv.check()


def test_a_table_with_blocks_of_its_own_does_not_follow():
    kv = FakeKv(8)
    computed(kv, TEXT)
    table, cursor = kv.table(), kv.tree.start("")
    table.grow(16)
    assert kv.tree.follow(cursor, table, int32(TEXT), 50) == 0
    assert (table.num_blocks, cursor.num_blocks) == (1, 0)


def test_salts_do_not_meet():
    kv = FakeKv(16)
    computed(kv, TEXT, "one")
    assert followed(kv, TEXT, salt="two")[2] == followed(kv, TEXT)[2] == partial(kv, TEXT, salt="two") == 0
    computed(kv, TEXT, "two")
    assert followed(kv, TEXT, salt="one")[2] == followed(kv, TEXT, salt="two")[2] == 48


def test_blocks_computed_twice_become_one():
    kv = FakeKv(12)
    first = computed(kv, TEXT)
    second = computed(kv, [*TEXT[:40], *range(10)])
    assert second.blocks()[:2] == first.blocks()[:2]
    assert kv.values(second, 50) == expected([*TEXT[:40], *range(10)])
    assert (kv.pool().num_used, kv.pool().num_spare) == (4 + 2, 2)
    kv.release(first)
    assert kv.values(second, 50) == expected([*TEXT[:40], *range(10)])
    kv.release(second)
    assert (kv.pool().num_used, kv.pool().num_cached) == (0, 6)
    kv.check()


def test_a_tail_computed_twice_is_kept_once():
    kv = FakeKv(12)
    tables = [computed(kv, TEXT), computed(kv, TEXT[:45]), computed(kv, TEXT)]
    for table in tables:
        kv.release(table)
    assert kv.pool().num_cached == 4
    assert partial(kv, TEXT) == 2


def test_a_tail_that_becomes_full_as_another_did_is_not_kept():
    kv = FakeKv(12)
    slow, cursor = kv.table(), kv.tree.start("")
    slow.grow(5)
    kv.compute(slow, TEXT[:5])
    kv.tree.record_tail(cursor, slow, int32(TEXT[:5]))
    fast = computed(kv, TEXT[:16])
    kv.compute(slow, TEXT[:16], 5)
    kv.tree.record(cursor, slow, int32(TEXT[:16]))
    kv.check()
    assert slow.blocks() == fast.blocks()
    assert (kv.pool().num_used, kv.pool().num_spare) == (1, 1)


def test_a_tail_that_another_overtook_is_forgotten():
    kv = FakeKv(12)
    slow, cursor = computed(kv, TEXT[:36]), kv.tree.start("")
    kv.tree.follow(cursor, kv.table(), int32(TEXT), 32)
    computed(kv, TEXT[:45])
    slow.grow(40)
    kv.compute(slow, TEXT[:40], 36)
    kv.tree.record_tail(cursor, slow, int32(TEXT[:40]))
    assert kv.tree.num_recorded(slow.blocks()[2]) == 0
    assert partial(kv, TEXT[:40]) == 8


@pytest.mark.parametrize(
    ("tokens", "limit", "count"),
    [
        (TEXT, 50, 2),
        ([*TEXT, 1, 2], 52, 2),
        (TEXT, 49, 1),
        (TEXT, 48, 0),
        (TEXT, 47, 15),  # of a full block
        ([*TEXT[:40], 7, 7, 7], 43, 8),
        ([*TEXT[:32], 7], 33, 0),
        (TEXT[:5], 5, 5),
        (TEXT[:5], 4, 4),
        (TEXT, 0, 0),
        (TEXT, -1, 0),
    ],
)
def test_a_partial_block_is_found_by_its_first_tokens(tokens: list[int], limit: int, count: int):
    kv = FakeKv(12)
    computed(kv, TEXT)
    assert partial(kv, tokens, limit) == count


@pytest.mark.parametrize("other", [9, 2**31 - 1])
def test_the_child_with_the_longest_common_start_is_found(other: int):
    """Whether it stands before or behind the others in their order."""
    kv = FakeKv(64)
    for length in (1, 3, 12, 7):
        computed(kv, [*TEXT[:16], *TEXT[16 : 16 + length], *[other] * (14 - length)])
    assert partial(kv, TEXT) == 12
    assert partial(kv, [*TEXT[:21], 5]) == 5
    assert partial(kv, [*TEXT[:16], 5]) == 0


def test_a_tail_grows_into_a_full_block_while_its_owner_writes_on():
    kv = FakeKv(12)
    table, cursor = kv.table(), kv.tree.start("")
    for before, length, recorded in [(0, 5, [5]), (5, 9, [9]), (9, 16, [16]), (16, 20, [16, 4])]:
        table.grow(length)
        kv.compute(table, TEXT[:length], before)
        kv.tree.record_tail(cursor, table, int32(TEXT[:length]))
        kv.check()
        assert [kv.tree.num_recorded(block) for block in table.blocks()] == recorded
    assert followed(kv, TEXT)[2] == 16
    assert partial(kv, TEXT) == 4


def test_recording_costs_nothing_until_a_block_is_full():
    kv = FakeKv(4)
    table, cursor = kv.table(), kv.tree.start("")
    table.grow(16)
    kv.compute(table, TEXT[:16])
    kv.tree.record(cursor, table, int32(TEXT[:15]))
    assert (cursor.num_blocks, kv.tree.num_recorded(table.blocks()[0])) == (0, 0)
    kv.tree.record(cursor, table, int32(TEXT[:16]))
    assert (cursor.num_blocks, kv.tree.num_recorded(table.blocks()[0])) == (1, 16)


def test_equal_keys_mean_equal_work():
    kv = FakeKv(12)
    computed(kv, TEXT)
    (_, one, _), (_, two, _) = followed(kv, TEXT), followed(kv, TEXT)
    key = kv.tree.next_key(one, int32(TEXT))
    assert key == kv.tree.next_key(two, int32(TEXT))
    assert hash(key) == hash(kv.tree.next_key(two, int32(TEXT)))
    assert key != kv.tree.next_key(two, int32([*TEXT, 1]))
    assert key != kv.tree.next_key(followed(kv, TEXT, 32)[1], int32(TEXT))
    starts = {kv.tree.next_key(kv.tree.start(salt), int32(TEXT)) for salt in ("", "a", "b")}
    assert len(starts) == 3


def test_forgetting_a_block_forgets_what_builds_on_it():
    kv = FakeKv(16)
    table, other = computed(kv, TEXT), computed(kv, [*TEXT[:16], *range(20)])
    kv.release(other)
    assert kv.pool().num_cached == 2
    kv.tree.forget(table.blocks()[1])
    assert followed(kv, TEXT)[2] == 16
    assert followed(kv, [*TEXT[:16], *range(20)])[2] == 32
    kv.tree.forget(table.blocks()[0])
    assert followed(kv, TEXT)[2] == followed(kv, [*TEXT[:16], *range(20)])[2] == 0
    assert (kv.pool().num_cached, kv.pool().num_spare) == (0, 2)
    kv.check()


def test_a_cursor_that_was_overtaken_by_forgetting_records_nothing():
    kv = FakeKv(8)
    table, cursor, _ = followed(kv, TEXT)
    table.grow(50)
    kv.compute(table, TEXT)
    kv.tree.record(cursor, table, int32(TEXT[:32]))
    kv.tree.forget(table.blocks()[0])
    kv.tree.record_tail(cursor, table, int32(TEXT))
    assert not any(map(kv.tree.num_recorded, table.blocks()))
    kv.check()


def test_children_are_evicted_before_their_parents():
    kv = FakeKv(4)
    kv.release(computed(kv, TEXT))
    table = kv.table()
    for left in (48, 32, 16, 0):
        assert table.grow(64 - left)
        assert followed(kv, TEXT)[2] == left
        kv.release(kv.tables[-1])
        kv.check()


def test_what_was_used_last_is_evicted_last():
    kv = FakeKv(6)
    texts = [[n, *TEXT[:15]] for n in range(6)]
    for text in texts:
        kv.release(computed(kv, text))
    kv.release(followed(kv, texts[0])[0])
    kv.table().grow(16 * 4)
    held = [followed(kv, text)[2] for text in texts]
    assert held == [16, 0, 0, 0, 0, 16]


def test_eviction_goes_by_age_over_all_pools_and_memory_is_given_back_before_it_is_taken():
    budget = Budget(12 * 64)
    small, large = FakeKv(12, budget), FakeKv(6, budget, block_bytes=128)
    texts = [[n, *TEXT[:15]] for n in range(4)]
    for text in texts:
        small.release(computed(small, text))
        large.release(computed(large, text))
    assert budget.committed_bytes == 12 * 64
    assert (small.kv.available_bytes, large.kv.available_bytes) == (12 * 64, 6 * 128)
    large.table().grow(16)  # takes its own oldest: the small pool's goes first, but does not suffice
    assert [followed(small, text)[2] for text in texts] == [0, 16, 16, 16]
    assert [followed(large, text)[2] for text in texts] == [0, 16, 16, 16]
    assert budget.committed_bytes <= budget.limit_bytes


def test_blocks_of_a_full_arena_come_from_itself():
    budget = Budget(100 * 64)
    one, two = FakeKv(4, budget), FakeKv(4, budget)
    two.release(computed(two, TEXT))
    one.release(computed(one, TEXT))
    assert one.table().grow(32)
    assert (one.pool().num_cached, two.pool().num_cached) == (2, 4)


def test_age_follows_use_however_often_that_is():
    budget = Budget(12 * 64)
    one, two = FakeKv(8, budget, extent_blocks=2), FakeKv(8, budget, extent_blocks=2)
    texts = [[n, *TEXT[:31]] for n in range(4)]  # of an extent each
    for text in texts:
        one.release(computed(one, text))
    for n in range(300):
        one.release(followed(one, texts[n % 4])[0])
    two.table().grow(16 * 8)
    assert [followed(one, text)[2] for text in texts] == [0, 0, 32, 32]


def test_dropping_what_is_cached_leaves_no_trace():
    kv = FakeKv(16)
    used = computed(kv, TEXT[:20], "x")
    kv.release(computed(kv, TEXT))
    assert (kv.pool().num_cached, kv.pool().num_used) == (4, 2)
    kv.kv.drop_cached()
    kv.kv.trim()
    assert (kv.pool().num_cached, kv.pool().num_spare, kv.kv.committed_bytes) == (0, 0, 2 * 64)
    assert followed(kv, TEXT)[2] == 0
    assert followed(kv, TEXT, salt="x")[2] == 16
    for table in [used, *kv.tables]:
        kv.release(table)
    kv.kv.close()
    assert kv.budget.committed_bytes == 0
    kv.kv.check()


def test_tokens_may_be_a_view():
    kv = FakeKv(8)
    computed(kv, TEXT)
    tokens = np.repeat(int32(TEXT), 2)[::2]
    assert not tokens.flags.c_contiguous
    table = kv.table()
    assert kv.tree.follow(kv.tree.start(""), table, tokens, 50) == 48


def test_of_a_long_path_without_files_a_few_nodes_are_taken_at_a_time():
    kv = FakeKv(16)
    unsaved = UnsavedNodes(kv.tree, 1)
    text = list(range(10 * 16))
    kv.release(computed(kv, text))
    unsaved.forget()
    kv.release(computed(kv, [*text, *text[:16]]))
    batches = [unsaved.take(4) for _ in range(4)]
    assert [len(nodes) for nodes in batches] == [4, 4, 3, 0]
    assert (
        b"".join(node.tokens for nodes in batches for node in nodes) == int32([*text, *text[:16]]).tobytes()
    )


def test_blocks_that_somebody_had_for_a_while_are_evicted_when_they_would_have_been():
    kv = FakeKv(16)
    unsaved = UnsavedNodes(kv.tree, 1)
    text, other = list(range(64)), [9] * 64
    for tokens in (text, other):
        kv.release(computed(kv, tokens))
    for nodes in (unsaved.take(2), unsaved.take(2)):
        blocks = [block for node in nodes for block in node.blocks]
        kv.kv.blocks.retain(0, blocks)
        kv.kv.blocks.release(0, blocks)
        kv.tree.restore_order(nodes)
    kv.check()
    for _ in range(5):
        kv.kv.blocks.evict(0)
    assert [followed(kv, tokens)[2] for tokens in (text, other)] == [48, 0]
