"""Which slot a prompt gets, what it reuses, what goes when the context is full: Ollama's rules."""

from __future__ import annotations

import time

import pytest

from puna.kv.input_cache import (
    Embedding,
    Input,
    InputCache,
    InputCacheError,
    ShiftError,
    count_common_prefix,
)
from tests.kv.fake_kv import FakeKv
from tests.kv.fake_slots import Slots

pytestmark = pytest.mark.native

NEVER = float("inf")
IMAGE_A, IMAGE_B = Embedding(b"a"), Embedding(b"b")


@pytest.mark.parametrize(
    ("cached", "prompt", "common"),
    [
        ([7, 7, 9], [7, 7, 8, 9], 2),
        ([4, 5, 6], [], 0),
        ([5, IMAGE_A, 6], [5, IMAGE_B, 6], 1),
        ([5, IMAGE_A, 6], [5, IMAGE_A, 6, 6], 3),
        ([1] * 1000, [1] * 1000, 1000),
        ([1] * 256 + [2], [1] * 256 + [3], 256),
        ([1] * 700 + [2], [1] * 699 + [2, 2], 699),
        ([1, 2], [1], 1),
    ],
)
def test_common_prefix(cached: list[Input], prompt: list[Input], common: int):
    assert count_common_prefix(cached, prompt) == count_common_prefix(prompt, cached) == common


# id: content, seconds since use, in use
CHOICES = [
    ([([10, 11, 12], 5, 0), ([10, 11], 9, 0), ([], NEVER, 0)], [10, 11, 12, 13], (0, 3), (0, 3, 0)),
    ([([10, 11, 12], 5, 0), ([10, 11], 9, 0), ([], NEVER, 0)], [10, 11, 20], (0, 2), (2, 2, 0)),
    (
        [([30, 31, 32, 33], 5, 1), ([30, 40], 40, 0), ([50], 100, 0)],
        [30, 31, 32, 60],
        (1, 1),
        (2, 3, 0),
    ),
    ([([3, 4, 5], 60, 0), ([8], 2, 0)], [3, 4, 9], (0, 2), (0, 2, 0)),
    ([([1, 2], 3, 0), ([5, 6], 40, 0), ([], 10, 0)], [9], (0, 0), (1, 0, 1)),
    ([([], 10, 0), ([5, 6], 40, 0)], [9], (0, 0), (0, 0, 0)),
    ([([7, 7, 7], 100, 1), ([], 50, 0)], [7, 7, 7, 7], (1, 0), (1, 3, 0)),
    # A part of an image in the common beginning, and another image.
    ([([5, IMAGE_A, 6], 5, 0), ([5], 9, 0)], [5, IMAGE_A, 7], (0, 2), (1, 2, 0)),
    ([([5, IMAGE_A, 6], 5, 0), ([5], 9, 0)], [5, IMAGE_B, 6], (0, 1), (1, 1, 0)),
]


@pytest.mark.parametrize(("slots", "prompt", "longest", "best"), CHOICES)
@pytest.mark.parametrize("multi_user", [False, True])
def test_choice_of_the_slot(slots, prompt: list[Input], longest, best, multi_user: bool):
    world = Slots(len(slots), multi_user=multi_user)
    for slot_id, (inputs, age, busy) in enumerate(slots):
        world.fill(slot_id, list(inputs), age, bool(busy))
    held = [list(inputs) for inputs in world.contents]
    find = world.cache.find_best if multi_user else world.cache.find_longest
    slot, source, reuse = find(prompt)
    want = best if multi_user else (*longest, longest[0])
    assert (slot.id, reuse, source.id) == want
    # And loading does so; everyone else keeps what they have.
    slot, left = world.cache.load_cache_slot(prompt, True)
    reuse = min(reuse, len(prompt) - 1)
    assert (slot.id, slot.inputs, left) == (want[0], prompt[:reuse], prompt[reuse:])
    held[slot.id] = prompt[:reuse]
    assert world.contents == held
    assert slot.in_use
    world.check()
    world.compute(slot, left)
    world.check()


@pytest.mark.parametrize("multi_user", [False, True])
def test_no_free_slot_is_an_error(multi_user: bool):
    world = Slots(2, multi_user=multi_user)
    world.fill(0, [10], busy=True)
    world.fill(1, [10, 11], busy=True)
    with pytest.raises(InputCacheError, match=r"^no available cache slots$"):
        world.cache.load_cache_slot([10], True)
    world.check()


@pytest.mark.parametrize(
    ("prompt", "content", "left"),
    [
        ([21, 22, 23, 24, 25, 26], [21, 22, 23, 24], [25, 26]),
        ([21, 22, 23, 24], [21, 22, 23], [24]),
        ([21, 22], [21], [22]),
        ([21], [], [21]),
    ],
)
def test_loading_a_slot(prompt: list[Input], content: list[Input], left: list[Input]):
    world = Slots(2, multi_user=False)
    world.fill(0, [21, 22, 23, 24])
    before = time.monotonic()
    slot, remaining = world.cache.load_cache_slot(prompt, True)
    assert (slot.id, slot.inputs, remaining) == (0, content, left)
    assert slot.in_use
    assert slot.last_used >= before
    assert slot.table.num_blocks == bool(content)
    world.check()


def test_loading_without_caching_reuses_nothing():
    for multi_user, taken in ((False, 0), (True, 1)):
        world = Slots(2, multi_user=multi_user)
        world.fill(0, [21, 22, 23, 24], age=1)
        slot, left = world.cache.load_cache_slot([21, 22, 23, 99], False)
        assert (slot.id, slot.inputs, left) == (taken, [], [21, 22, 23, 99])
        world.check()


@pytest.mark.parametrize(("common", "reuse"), [(3, 0), (20, 16)])
def test_a_slot_whose_block_cannot_be_copied_is_erased_from_there(common: int, reuse: int):
    world = Slots(2, multi_user=True, num_blocks=3)
    world.fill(0, list(range(36)), age=1)
    # A second slot shares the full blocks, so that cutting within one of them takes another one.
    sharer, _ = world.cache.load_cache_slot([*range(32), 99], True)
    assert (sharer.id, len(sharer.inputs)) == (1, 32)
    prompt = [*range(common), 99]
    slot, left = world.cache.load_cache_slot(prompt, True)
    assert (slot.id, slot.inputs, left) == (0, prompt[:reuse], prompt[reuse:])
    world.check()


def test_a_slot_that_cannot_resume_starts_again():
    """A window has slid over what it would need."""
    world = Slots(1, multi_user=False, window=17)
    world.fill(0, list(range(64)))
    slot, left = world.cache.load_cache_slot([*range(64), 1], True)
    assert left == [1]
    world.cache.release_slot(slot, slot.inputs)
    slot, left = world.cache.load_cache_slot([*range(40), 1], True)
    assert (slot.inputs, left) == ([], [*range(40), 1])


def test_several_users_fork_before_one_input_is_taken_off():
    world = Slots(2, multi_user=True)
    world.fill(0, [21, 22, 23, 24], age=1)
    slot, left = world.cache.load_cache_slot([21, 22], True)
    assert (slot.id, slot.inputs, left) == (1, [21], [22])
    assert world.contents[0] == [21, 22, 23, 24]
    world.check()


def test_a_prompt_without_inputs_is_refused():
    world = Slots(1, multi_user=False)
    with pytest.raises(InputCacheError, match=r"^no input$"):
        world.cache.load_cache_slot([], True)
    assert not world.cache.slots[0].in_use


def test_a_fork_shares_blocks():
    world = Slots(3, multi_user=True)
    world.fill(0, list(range(40)), busy=True)
    slot, left = world.cache.load_cache_slot([*range(36), 99], True)
    assert (slot.id, left) == (1, [99])
    assert world.kv.pool().num_used == 4
    world.compute(slot, left)
    world.compute(world.cache.slots[0], [40])
    world.check()


def test_a_fork_without_memory_reuses_whole_blocks():
    world = Slots(2, multi_user=True, num_blocks=3)
    world.fill(0, list(range(40)), busy=True)
    slot, left = world.cache.load_cache_slot([*range(20), 99], True)
    assert (slot.id, slot.inputs, left) == (1, list(range(16)), [16, 17, 18, 19, 99])
    world.check()


@pytest.mark.parametrize(("kv_size", "num_slots"), [(3, 4), (0, 1), (5, 0)])
def test_slots_too_small_are_refused(kv_size: int, num_slots: int):
    kv = FakeKv(1)
    text = r"^must have at least one kv cache entry per parallel sequence \(kv: %d parallel: %d\)$"
    with pytest.raises(InputCacheError, match=text % (kv_size, num_slots)):
        InputCache(kv.kv, kv_size=kv_size, num_slots=num_slots, multi_user=False)


def test_the_context_is_divided_among_the_slots():
    kv = FakeKv(1)
    cache = InputCache(kv.kv, kv_size=100, num_slots=3, multi_user=False)
    assert (cache.num_ctx, [slot.id for slot in cache.slots]) == (33, [0, 1, 2])


def with_groups(count: int, *groups: tuple[int, int]) -> list[Input]:
    """Inputs 0, 1, 2, ...; those from the first to the last index of a group belong together."""
    inputs: list[Input] = list(range(count))
    for first, last in groups:
        inputs[first] = Embedding(b"%d" % first, last - first)
    return inputs


@pytest.mark.parametrize(
    ("keep", "count", "kept", "begin", "resolved"),
    [(4, 20, 4, 8, 4), (-1, 20, 15, 19, 15), (4, 16, 4, 4, 4), (-1, 3, 3, 3, 3), (99, 16, 15, 15, 15)],
)
def test_a_prompt_longer_than_the_context_loses_its_oldest(
    keep: int, count: int, kept: int, begin: int, resolved: int
):
    cache = Slots(1, 16, multi_user=False).cache
    prompt = list(range(count))
    assert cache.fit_prompt(prompt, keep, truncate=True) == (prompt[:kept] + prompt[begin:], resolved)


def test_a_prompt_longer_than_the_context_is_refused_where_truncation_is_not_allowed():
    cache = Slots(1, 16, multi_user=False).cache
    with pytest.raises(InputCacheError, match=r"^input length exceeds the context length$"):
        cache.fit_prompt(list(range(20)), 4, truncate=False)
    assert cache.fit_prompt(list(range(16)), 4, truncate=False) == (list(range(16)), 4)


def test_a_full_context_shifts_at_the_first_token():
    world = Slots(1, 16, multi_user=False)
    prompt, keep = world.cache.fit_prompt(list(range(16)), 4, truncate=True)
    slot, left = world.cache.load_cache_slot(prompt, True)
    world.compute(slot, left)
    world.cache.shift_cache_slot(slot, keep)
    assert slot.inputs == [0, 1, 2, 3, 10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize(
    ("groups", "begin"),
    [
        ([], 6),
        ([(6, 10)], 6),
        ([(8, 10)], 6),
        ([(3, 5)], 6),
        ([(3, 7)], 8),
        ([(5, 12), (10, 14)], 15),
        ([(5, 12), (8, 9)], 10),
    ],
)
def test_truncation_does_not_cut_groups(groups, begin: int):
    """Inputs 2 to 5 are too many."""
    prompt = with_groups(20, *groups)
    cache = Slots(1, 16, multi_user=False).cache
    assert cache.fit_prompt(prompt, 2, truncate=True) == (prompt[:2] + prompt[begin:], 2)


def test_a_group_among_what_is_kept_is_an_error():
    cache = Slots(1, 16, multi_user=False).cache
    with pytest.raises(InputCacheError, match=r"within numKeep \(index: 2 numKeep: 4 SameBatch: 3\)"):
        cache.fit_prompt(with_groups(20, (2, 5)), 4, truncate=True)
    assert cache.fit_prompt(with_groups(16, (2, 5)), 4, truncate=True)


def test_truncation_that_leaves_nothing_is_an_error():
    cache = Slots(1, 16, multi_user=False).cache
    with pytest.raises(InputCacheError, match=r"^entire prompt removed by truncation$"):
        cache.fit_prompt(with_groups(20, (5, 19)), 4, truncate=True)


DISCARDS = [
    (100, 10, 100, [], 45, 55),
    (101, 10, 101, [], 45, 56),
    (64, 63, 64, [], 1, 63),
    (64, 0, 40, [], 8, 32),
    (64, 4, 30, [], 0, 30),
    (64, 4, 200, [], 166, 34),
    (64, 30, 5, [], 0, 5),
    (20, 2, 20, [(5, 8)], 9, 11),
    (20, 2, 20, [(9, 14)], 13, 7),
    (20, 2, 20, [(10, 11)], 10, 10),
    (20, 2, 20, [(11, 15)], 9, 11),
    (20, 2, 20, [(9, 14), (12, 18)], 17, 3),
    (20, 2, 20, [(9, 14), (10, 11)], 10, 10),
    (20, 2, 20, [(9, 19)], 18, 2),
]


@pytest.mark.parametrize(("context", "keep", "count", "groups", "discard", "left"), DISCARDS)
def test_how_much_is_discarded(context: int, keep: int, count: int, groups, discard: int, left: int):
    world = Slots(1, context, multi_user=False)
    inputs = with_groups(count, *groups)
    assert world.cache.shift_discard(inputs, keep) == discard
    # And a slot that is shifted has what is left, rotated to where it lies now.
    slot, remaining = world.cache.load_cache_slot(inputs, True)
    world.compute(slot, remaining)
    values = world.kv.values(slot.table, count)
    world.cache.shift_cache_slot(slot, keep)
    assert slot.inputs == inputs[:keep] + inputs[keep + discard :]
    assert len(slot.inputs) == left
    moved = [(content, -discard) for content, _ in values[keep + discard :]]
    assert world.kv.values(slot.table, left) == values[:keep] + moved
    assert slot.table.num_blocks == -(-left // 16)


def test_a_shift_keeps_the_first_and_moves_the_rest_down():
    world = Slots(1, 16, multi_user=False)
    text: list[Input] = [ord(letter) for letter in "abcdefghijklmnop"]
    slot, left = world.cache.load_cache_slot(text, True)
    world.compute(slot, left)
    assert world.cache.shift_discard(slot.inputs, 4) == 6
    world.cache.shift_cache_slot(slot, 4)
    assert "".join(map(chr, slot.inputs)) == "abcdklmnop"


def test_keeping_all_of_the_context_is_an_error():
    world = Slots(1, 16, multi_user=False)
    world.fill(0, list(range(16)))
    text = r"^unable to shift context - keep exceeds context \(keep: 16 context: 16\)$"
    with pytest.raises(InputCacheError, match=text):
        world.cache.shift_cache_slot(world.cache.slots[0], 16)
    assert world.contents == [list(range(16))]


@pytest.mark.parametrize("reason", ["model", "memory"])
def test_a_shift_that_fails_empties_the_slot_and_returns_what_would_be_left(reason: str):
    world = Slots(2, 40, multi_user=True, num_blocks=3, can_shift=reason == "memory")
    world.fill(0, list(range(40)), age=1)
    slot, _ = world.cache.load_cache_slot([*range(33), 99], True)  # shares two blocks; there is no third
    assert len(slot.inputs) == 32
    text = r"^unable to remove old kv cache entries \(id: 0, keep: 4 discard: 18\)$"
    with pytest.raises(ShiftError, match=text) as caught:
        world.cache.shift_cache_slot(world.cache.slots[0], 4)
    assert caught.value.inputs == [*range(4), *range(22, 40)]
    assert world.contents == [[], list(range(32))]
    assert world.cache.slots[0].table.num_blocks == 0
    world.check()


def test_a_model_that_cannot_shift_can_still_lose_its_last_inputs():
    world = Slots(1, 16, multi_user=False, can_shift=False)
    world.fill(0, list(range(16)))
    world.cache.shift_cache_slot(world.cache.slots[0], 15)
    assert world.contents == [list(range(15))]
    world.check()


def test_a_shift_leaves_sharers_alone():
    world = Slots(2, 40, multi_user=True)
    world.fill(0, list(range(40)), age=1)
    slot, left = world.cache.load_cache_slot([*range(33), 99], True)
    world.compute(slot, left)
    world.cache.shift_cache_slot(world.cache.slots[0], 4)
    world.sync()
    world.kv.check()
    assert world.kv.values(slot.table, 34) == [(tuple(slot.inputs[: end + 1]), 0) for end in range(34)]


def test_a_released_slot_keeps_what_is_worth_keeping():
    world = Slots(2, multi_user=True)
    slot, left = world.cache.load_cache_slot(list(range(40)), True)
    world.compute(slot, left)
    other, _ = world.cache.load_cache_slot([*range(33), 99], True)
    slot.table.grow(100)
    world.cache.release_slot(slot, list(range(30)))  # its second block is shared and cut
    assert (slot.in_use, slot.table.num_blocks) == (False, 2)
    world.check()
    slot, left = world.cache.load_cache_slot([*range(30), 7], True)
    assert (slot.id, left) == (0, [7])
    world.compute(slot, left)
    world.check()
    assert other.inputs == list(range(33))


def test_an_emptied_slot_gives_its_blocks_back():
    world = Slots(2, multi_user=False)
    world.fill(0, [1], age=5)
    world.fill(1, [2], busy=True)
    world.cache.empty_slot(world.cache.slots[0])
    assert world.kv.pool().num_used == 1
    assert world.contents == [[], [2]]
    world.check()


@pytest.mark.parametrize("multi_user", [False, True])
def test_state_goes_on_at_its_end_only(multi_user: bool) -> None:
    slots = Slots(2, multi_user=multi_user, num_states=4)
    slot, _ = slots.cache.load_cache_slot([1] * 20, True)
    slots.compute(slot, [1] * 20)
    slots.cache.release_slot(slot, [1] * 20)
    slots.check()
    slot, left = slots.cache.load_cache_slot([1] * 20 + [2], True)
    assert left == [2]
    slots.compute(slot, left)
    slots.check()
    slots.cache.release_slot(slot, slot.inputs)
    slot, left = slots.cache.load_cache_slot([1] * 20 + [3], True)
    assert len(left) == 21
    slots.compute(slot, left)
    slots.check()
