"""Sequences run in slots, which keep what they computed last: Ollama's way."""

from __future__ import annotations

from collections.abc import Hashable

from puna.engine.sequences.sequence import Sequence
from puna.kv import SequenceTable
from puna.kv.input_cache import InputCache, InputCacheError, InputCacheSlot
from puna.kv.model_kv import ModelKv


class SlotPolicy:
    """A CachePolicy. Nothing is found by content but what the slots hold."""

    def __init__(self, kv: ModelKv, cache: InputCache) -> None:
        self.cache = cache
        self._kv = kv
        self._slots: dict[str, tuple[Sequence, InputCacheSlot]] = {}  # by sequence id

    def admit(self, sequence: Sequence) -> bool:
        for other, slot in self._slots.values():  # what a fork may take of them
            slot.inputs = other.cached_tokens.tolist() if other.is_content_addressed else []
        prompt = sequence.tokens[: sequence.context_length].tolist()
        may_skip = sequence.request.cache_prompt and sequence.may_skip_prompt
        try:
            slot, left = self.cache.load_cache_slot(prompt, may_skip, sequence.namespace)
        except InputCacheError:  # all are in use
            return False
        self._slots[sequence.id] = sequence, slot
        if sequence.table.keeps_all and not slot.table.keeps_all:
            self.cache.empty_slot(slot)
            slot.table, left = sequence.table, prompt
        slot.table.keeps_all = sequence.table.keeps_all
        sequence.table = slot.table
        sequence.skip(len(prompt) - len(left))
        return True

    def catch_up(self, sequence: Sequence, claimed: set[Hashable]) -> bool:  # noqa: ARG002
        return True

    def reuse_part(self, sequence: Sequence) -> None:
        pass

    def computed(self, sequence: Sequence) -> None:
        pass

    def shift(self, sequence: Sequence) -> bool:
        # Not the slot's own shift_cache_slot(): a request's context may be shorter than the slot's, and where
        # blocks are short, others make way before anything is lost.
        begin, end = sequence.num_keep, sequence.num_keep + sequence.num_discard
        return sequence.table.remove(begin, end, sequence.position)

    def release(self, sequence: Sequence, *, goes_on: bool) -> None:  # noqa: ARG002
        _, slot = self._slots.pop(sequence.id)
        # Behind the kept ones, shifted KV is not what another prompt with these tokens would compute.
        end = sequence.num_computed if sequence.is_content_addressed else sequence.num_keep
        self.cache.release_slot(slot, sequence.tokens[:end].tolist())
        sequence.table = self._kv.new_table(keeps_all=sequence.table.keeps_all)

    def abandon(self, sequence: Sequence) -> None:
        self._slots.pop(sequence.id, None)
        sequence.table.release()
        for slot in self.cache.slots:
            if slot.table is sequence.table:
                slot.inputs, slot.in_use = [], False
        sequence.table = self._kv.new_table(keeps_all=sequence.table.keeps_all)

    def idle_tables(self) -> list[SequenceTable]:
        return [slot.table for slot in self.idle_slots()]

    def empty_idle(self) -> None:
        for slot in self.idle_slots():
            self.cache.empty_slot(slot)

    def idle_slots(self) -> list[InputCacheSlot]:
        """Those that keep something though no sequence runs in them."""
        return [slot for slot in self.cache.slots if slot.table.num_blocks and not slot.in_use]
