"""Slots that keep the KV of a past conversation each: Ollama's rules for which prompt gets which slot."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from puna._native import SequenceTable
from puna.kv.blocks import BLOCK_TOKENS
from puna.kv.model_kv import ModelKv


@dataclass(frozen=True, slots=True)
class Embedding:
    """An input that is no token: a vector that stands in place of a token's, as of a part of an image."""

    content: bytes
    """Makes equal embeddings equal: the vector, or a hash of its source."""
    num_following: int = 0
    """How many of the next inputs must be computed in one batch with it: they form a group."""


Input: TypeAlias = int | Embedding


class InputCacheError(ValueError):
    """A prompt or a shift that the slots have no room for; the text is Ollama's."""


class ShiftError(InputCacheError):
    """The slot is empty now; `inputs` would have been left in it, and must be computed again."""

    def __init__(self, text: str, inputs: list[Input]) -> None:
        super().__init__(text)
        self.inputs = inputs


@dataclass(eq=False, slots=True)
class InputCacheSlot:
    """A sequence that runs in a slot uses its table, and adds its computed inputs to `inputs`."""

    id: int
    table: SequenceTable
    inputs: list[Input] = field(default_factory=list)
    """The inputs whose KV the table holds."""
    namespace: str = ""
    """Only prompts of the same one may use what it holds."""
    in_use: bool = False
    last_used: float = float("-inf")
    """When it was last taken, by time.monotonic()."""


class Match(NamedTuple):
    """The slot to take, and whose first `num_inputs` inputs to start with: its own or those of `source`."""

    slot: InputCacheSlot
    source: InputCacheSlot
    num_inputs: int


class InputCache:
    """A fixed number of slots with equal parts of a context.

    num_ctx: inputs that each slot can hold; only those that it does hold take memory.
    """

    def __init__(
        self,
        kv: ModelKv,
        *,
        kv_size: int,
        num_slots: int,
        multi_user: bool,
        can_shift: bool = True,
    ) -> None:
        """kv_size: inputs of all slots together.

        multi_user: True keeps what slots hold for as long as possible, and shares beginnings; False continues
        the slot with the longest common beginning, at the cost of the rest of it.
        can_shift: whether the model's keys can be rotated. Raises InputCacheError.
        """
        if num_slots < 1 or kv_size < num_slots:
            raise InputCacheError(
                "must have at least one kv cache entry per parallel sequence "
                f"(kv: {kv_size} parallel: {num_slots})"
            )
        self.num_ctx = kv_size // num_slots
        self.multi_user = multi_user
        self.slots = [InputCacheSlot(i, kv.new_table()) for i in range(num_slots)]
        self._can_shift = can_shift
        self._has_states = kv.has_states

    def fit_prompt(self, prompt: list[Input], num_keep: int, truncate: bool) -> tuple[list[Input], int]:
        """The prompt, without the oldest inputs behind the first `num_keep` if it is longer than the context;
        and how many inputs to keep when shifting. Groups go as a whole.

        num_keep: negative for the whole prompt. Raises InputCacheError.
        """
        keep = min(len(prompt) if num_keep < 0 else num_keep, self.num_ctx - 1)
        if len(prompt) <= self.num_ctx:
            return prompt, keep
        if not truncate:
            raise InputCacheError("input length exceeds the context length")
        for index, size in enumerate(map(_num_following, prompt[:keep])):
            if size:
                raise InputCacheError(
                    f"SameBatch may not be specified within numKeep "
                    f"(index: {index} numKeep: {keep} SameBatch: {size})"
                )
        end = _end_of_discard(prompt, keep, keep + len(prompt) - self.num_ctx)
        if end == len(prompt):
            raise InputCacheError("entire prompt removed by truncation")
        return prompt[:keep] + prompt[end:], keep

    def load_cache_slot(
        self, prompt: list[Input], cache_prompt: bool, namespace: str = ""
    ) -> tuple[InputCacheSlot, list[Input]]:
        """Takes a slot for the prompt, and says which of its inputs are left to compute: at least one.

        cache_prompt: whether KV that is there may be used; namespace: only that of the same one.
        Raises InputCacheError.
        """
        if not prompt:
            raise InputCacheError("no input")
        find = self.find_best if self.multi_user else self.find_longest
        slot, source, common = find(prompt, namespace)
        # One is left, so that there are logits to sample from.
        reuse = min(common, len(prompt) - 1) if cache_prompt else 0
        if not source.table.can_resume(reuse):
            reuse = 0
        if source is not slot:
            self._fork(source, slot, reuse)
        else:
            self._cut(slot, reuse)
        slot.namespace = namespace
        slot.in_use = True
        slot.last_used = time.monotonic()
        return slot, prompt[len(slot.inputs) :]

    def find_longest(self, prompt: list[Input], namespace: str = "") -> Match:
        """The free slot that has most of the prompt's beginning; if all hold what is of other namespaces, the
        one used longest ago. Raises InputCacheError.
        """
        free = self._free()
        if found := _longest(free, prompt, namespace):
            slot, common = found
            return Match(slot, slot, common)
        oldest = _oldest(free)
        return Match(oldest, oldest, 0)

    def find_best(self, prompt: list[Input], namespace: str = "") -> Match:
        """The slot that has most of the prompt's beginning, if it is free and has nothing else; otherwise the
        free slot used longest ago, to start with a copy of that beginning. Raises InputCacheError.
        """
        found = _longest(self.slots, prompt, namespace)
        if found and found[1] == len(found[0].inputs) and not found[0].in_use:
            return Match(found[0], *found)
        oldest = _oldest(self._free())
        return Match(oldest, *found) if found and found[1] else Match(oldest, oldest, 0)

    def _free(self) -> list[InputCacheSlot]:
        free = [slot for slot in self.slots if not slot.in_use]
        if not free:
            raise InputCacheError("no available cache slots")
        return free

    def shift_discard(self, inputs: Sequence[Input], num_keep: int) -> int:
        """How many of the inputs behind the first `num_keep` must go so that half of what the context has
        behind these is free; 0 if it is. Groups go as a whole.
        """
        target_free = max((self.num_ctx - num_keep) // 2, 1)
        missing = target_free - (self.num_ctx - len(inputs))
        return _end_of_discard(inputs, num_keep, num_keep + missing) - num_keep if missing > 0 else 0

    def shift_cache_slot(self, slot: InputCacheSlot, num_keep: int) -> None:
        """Makes room in a slot by discarding the oldest inputs behind the first `num_keep`.

        Raises InputCacheError, or ShiftError where the model cannot shift or memory is short.
        """
        if num_keep >= self.num_ctx:
            raise InputCacheError(
                f"unable to shift context - keep exceeds context (keep: {num_keep} context: {self.num_ctx})"
            )
        num_inputs, discard = len(slot.inputs), self.shift_discard(slot.inputs, num_keep)
        if discard == 0:
            return
        end = num_keep + discard
        left = slot.inputs[:num_keep] + slot.inputs[end:]
        possible = self._can_shift or end == num_inputs
        if not possible or not slot.table.remove(num_keep, end, num_inputs):
            self.empty_slot(slot)
            raise ShiftError(
                f"unable to remove old kv cache entries (id: {slot.id}, keep: {num_keep} discard: {discard})",
                left,
            )
        slot.inputs = left

    def release_slot(self, slot: InputCacheSlot, inputs: list[Input]) -> None:
        """The sequence is done. inputs: the first of those whose KV is in the table, as many as are worth
        keeping; what was cut from the answer is not.
        """
        assert len(inputs) <= slot.table.num_blocks * BLOCK_TOKENS, "inputs without KV"
        slot.inputs = inputs
        self._cut(slot, len(inputs))
        slot.in_use = False

    def empty_slot(self, slot: InputCacheSlot) -> None:
        """Gives its blocks back."""
        slot.table.release()
        slot.inputs = []

    def _fork(self, source: InputCacheSlot, slot: InputCacheSlot, num_inputs: int) -> None:
        """Fills a slot with the beginning of another, behind which it can resume; without blocks to copy to,
        with whole blocks of it.
        """
        self.empty_slot(slot)
        table = source.table.fork(num_inputs)
        if table is None:
            num_inputs = _in_whole_blocks(source, num_inputs)
            table = source.table.fork(num_inputs)
            assert table is not None, "sharing takes no block"
        slot.table, slot.inputs = table, source.inputs[:num_inputs]

    def _cut(self, slot: InputCacheSlot, num_inputs: int) -> None:
        """Keeps the first inputs; if the last block is shared and there is none to copy to, whole blocks of
        them; none if a window reaches what it had left behind, or the state is not the one behind them.
        """
        room = slot.table.num_blocks * BLOCK_TOKENS
        if self._has_states:
            num_inputs = num_inputs if slot.table.can_resume(num_inputs) else 0
            slot.table.truncate(num_inputs)
        elif num_inputs < room and not slot.table.remove(num_inputs, room, room):
            num_inputs = _in_whole_blocks(slot, num_inputs)
            slot.table.truncate(num_inputs)
        slot.inputs = slot.inputs[:num_inputs]


def count_common_prefix(a: Sequence[Input], b: Sequence[Input]) -> int:
    """How many inputs both start with."""
    length = min(len(a), len(b))
    for begin in range(0, length, 256):  # comparing slices costs next to nothing per input
        end = min(begin + 256, length)
        if a[begin:end] != b[begin:end]:
            return next(i for i in range(begin, end) if a[i] != b[i])
    return length


def _longest(
    slots: Sequence[InputCacheSlot], prompt: list[Input], namespace: str
) -> tuple[InputCacheSlot, int] | None:
    """The slot with the longest common prefix, the first of them, and that prefix's length. None if all hold
    what is of other namespaces.
    """
    known = [slot for slot in slots if slot.namespace == namespace or not slot.inputs]
    if not known:
        return None
    lengths = [count_common_prefix(slot.inputs, prompt) for slot in known]
    longest = max(lengths)
    return known[lengths.index(longest)], longest


def _in_whole_blocks(slot: InputCacheSlot, num_inputs: int) -> int:
    """Inputs that full blocks of the slot hold, if it can resume behind them; otherwise none."""
    whole = num_inputs - num_inputs % BLOCK_TOKENS
    return whole if slot.table.can_resume(whole) else 0


def _oldest(slots: Sequence[InputCacheSlot]) -> InputCacheSlot:
    return min(slots, key=lambda slot: slot.last_used)


def _num_following(item: Input) -> int:
    return item.num_following if isinstance(item, Embedding) else 0


def _end_of_discard(inputs: Sequence[Input], begin: int, end: int) -> int:
    """Where discarding inputs[begin:end] ends if it must not end within a group. A group that starts within
    another takes its place.
    """
    group_end = begin
    for index in range(begin, len(inputs)):
        if index >= end and index >= group_end:
            return index
        if size := _num_following(inputs[index]):
            group_end = index + 1 + size
    return len(inputs)
