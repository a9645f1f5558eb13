"""How sequences come by KV that is already there, and where they leave theirs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from puna.engine.sequences.sequence import Sequence
from puna.kv import BLOCK_TOKENS, SequenceTable
from puna.kv.model_kv import ModelKv


class CachePolicy(Protocol):
    """Of one model. The scheduler calls it as a sequence goes through its life."""

    def admit(self, sequence: Sequence) -> bool:
        """Prepares a waiting sequence's table, with what of its KV is there; False: no place for it now."""

    def catch_up(self, sequence: Sequence, claimed: set[Hashable]) -> bool:
        """Takes what others have computed meanwhile. False: what it needs next is in `claimed`, so it had
        better wait a step; otherwise its next work is added."""

    def reuse_part(self, sequence: Sequence) -> None:
        """Takes the beginning of a block that goes on differently, by a copy."""

    def computed(self, sequence: Sequence) -> None:
        """Its counters have moved on after a step."""

    def shift(self, sequence: Sequence) -> bool:
        """Makes room in a full context; False, and nothing changed, if blocks are short."""

    def release(self, sequence: Sequence, *, goes_on: bool) -> None:
        """Takes the table of a sequence that ends; or, if it goes on, waits again."""

    def abandon(self, sequence: Sequence) -> None:
        """The same where release() failed: nothing of it is kept."""

    def idle_tables(self) -> list[SequenceTable]:
        """Tables that it keeps although no sequence uses them, besides what is found by content."""

    def empty_idle(self) -> None:
        """Gives all of that up."""


class NoPolicy:
    """Nothing is kept: of an encoder's texts."""

    def admit(self, sequence: Sequence) -> bool:  # noqa: ARG002
        return True

    def catch_up(self, sequence: Sequence, claimed: set[Hashable]) -> bool:  # noqa: ARG002
        return True

    def reuse_part(self, sequence: Sequence) -> None:
        pass

    def computed(self, sequence: Sequence) -> None:
        pass

    def shift(self, sequence: Sequence) -> bool:  # noqa: ARG002
        return False

    def release(self, sequence: Sequence, *, goes_on: bool) -> None:  # noqa: ARG002
        sequence.table.release()

    def abandon(self, sequence: Sequence) -> None:
        sequence.table.release()

    def idle_tables(self) -> list[SequenceTable]:
        return []

    def empty_idle(self) -> None:
        pass


class PrefixPolicy:
    """All computed KV is found by its content, as long as memory lasts."""

    def __init__(self, kv: ModelKv) -> None:
        self._kv = kv
        self._cache = kv.tree

    def admit(self, sequence: Sequence) -> bool:
        assert sequence.num_computed == sequence.table.num_blocks == 0, "admitted with a table"
        sequence.cursor = self._cache.start(sequence.namespace, to_disk=sequence.request.cache_to_disk)
        self._follow(sequence)
        return True

    def catch_up(self, sequence: Sequence, claimed: set[Hashable]) -> bool:
        if sequence.cursor is None or not sequence.request.cache_prompt:
            return True
        if sequence.num_findable <= sequence.num_computed:
            return True
        self._follow(sequence)
        work = self._cache.next_key(sequence.cursor, sequence.tokens)
        if work in claimed and self._can_follow(sequence):
            return False
        claimed.add(work)
        return True

    def _follow(self, sequence: Sequence) -> None:
        if self._can_follow(sequence):
            assert sequence.cursor is not None
            limit = sequence.num_findable
            covered = self._cache.follow(sequence.cursor, sequence.table, sequence.tokens, limit)
            sequence.skip(covered - sequence.num_computed)

    @staticmethod
    def _can_follow(sequence: Sequence) -> bool:
        """Within a block it cannot: that one it computes to its end."""
        if sequence.cursor is None or not sequence.request.cache_prompt:
            return False
        return sequence.table.num_blocks == sequence.cursor.num_blocks

    def reuse_part(self, sequence: Sequence) -> None:
        cursor, table = sequence.cursor, sequence.table
        if cursor is None or not self._can_follow(sequence):
            return
        sequence.skip(self._kv.copy_partial(cursor, table, sequence.tokens, sequence.num_findable))

    def computed(self, sequence: Sequence) -> None:
        cursor = sequence.cursor
        if cursor is None or sequence.num_shifts:
            return
        num_computed = sequence.num_computed
        if num_computed // BLOCK_TOKENS > cursor.num_blocks:
            self._record(sequence)
        if num_computed == sequence.num_tokens == sequence.num_prompt:
            # Sequences that share the whole prompt need not wait for the end of this sequence.
            self._cache.record_tail(cursor, sequence.table, sequence.tokens[: sequence.num_computed])

    def shift(self, sequence: Sequence) -> bool:
        begin, end = sequence.num_keep, sequence.num_keep + sequence.num_discard
        if not sequence.table.remove(begin, end, sequence.position):
            return False
        sequence.cursor = None
        return True

    def release(self, sequence: Sequence, *, goes_on: bool) -> None:  # noqa: ARG002
        if sequence.cursor is not None:
            self._record(sequence)
            tokens = sequence.tokens[: sequence.num_computed]
            self._cache.record_tail(sequence.cursor, sequence.table, tokens)
        sequence.table.release()

    def abandon(self, sequence: Sequence) -> None:
        sequence.table.release()

    def idle_tables(self) -> list[SequenceTable]:
        return []

    def empty_idle(self) -> None:
        pass

    def _record(self, sequence: Sequence) -> None:
        assert sequence.cursor is not None
        self._cache.record(sequence.cursor, sequence.table, sequence.tokens[: sequence.num_computed])
