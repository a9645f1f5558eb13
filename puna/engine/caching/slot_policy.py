"""Sequences run in slots, which keep what they computed last: Ollama's way."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from puna.engine.scheduling.sequence import Sequence
from puna.kv import SequenceTable
from puna.kv.input_cache import InputCache, InputCacheError, InputCacheSlot
from puna.kv.model_kv import ModelKv


class SlotPolicy:
    """A CachePolicy. Nothing is found by content but what the slots hold."""

    def __init__(self, pool: ModelKv, cache: InputCache) -> None:
        self.cache = cache
        self.pool = pool
        self._slots: dict[str, tuple[Sequence, InputCacheSlot]] = {}  # by sequence id

    def admit(self, sequence: Sequence) -> bool:
        for other, slot in self._slots.values():  # what a fork may take of them
            slot.inputs = other.cached_tokens.tolist() if other.is_content_addressed else []
        prompt = sequence.tokens[: sequence.context_length].tolist()
        request = sequence.request
        try:
            slot, left = self.cache.load_cache_slot(prompt, request.cache_prompt, sequence.namespace)
        except InputCacheError:  # all are in use
            return False
        self._slots[sequence.id] = sequence, slot
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

    def release(self, sequence: Sequence) -> None:
        _, slot = self._slots.pop(sequence.id)
        # Behind the kept ones, shifted KV is not what another prompt with these tokens would compute.
        end = sequence.num_computed if sequence.is_content_addressed else sequence.num_keep
        self.cache.release_slot(slot, sequence.tokens[:end].tolist())
        sequence.table = self.pool.new_table()

    def abandon(self, sequence: Sequence) -> None:
        self._slots.pop(sequence.id, None)
        sequence.table.release()
        for slot in self.cache.slots:
            if slot.table is sequence.table:
                slot.inputs, slot.in_use = [], False
        sequence.table = self.pool.new_table()


class IdleSlots:
    """What slots keep though no sequence runs in them, of all models: it goes first when memory is short."""

    def __init__(self) -> None:
        self._policies: dict[str, SlotPolicy] = {}

    def add_model(self, model_id: str, policy: SlotPolicy) -> None:
        self._policies[model_id] = policy

    def remove_model(self, model_id: str) -> None:
        """Gives its blocks back; no sequence runs on it."""
        if model_id in self._policies:
            self.empty(model_id)
            del self._policies[model_id]

    def empty(self, model_id: str) -> None:
        """Gives the blocks of its idle slots back."""
        for policy, slot in list(self._idle()):
            if policy is self._policies.get(model_id):
                policy.cache.empty_slot(slot)

    def has_blocks(self, model_id: str) -> bool:
        return any(table.num_blocks for table in self.tables(model_id))

    def tables(self, model_id: str) -> list[SequenceTable]:
        policy = self._policies.get(model_id)
        return [slot.table for slot in policy.cache.slots if not slot.in_use] if policy else []

    @property
    def num_bytes(self) -> int:
        return sum(slot.table.held_bytes for _, slot in self._idle())

    def give_up_one(self) -> bool:
        """Empties the slot that was used longest ago; False: all are empty or in use."""
        oldest = min(self._idle(), key=lambda item: item[1].last_used, default=None)
        if oldest is None:
            return False
        policy, slot = oldest
        policy.cache.empty_slot(slot)
        return True

    def _idle(self) -> Iterator[tuple[SlotPolicy, InputCacheSlot]]:
        for policy in self._policies.values():
            for slot in policy.cache.slots:
                if slot.table.num_blocks and not slot.in_use:
                    yield policy, slot
