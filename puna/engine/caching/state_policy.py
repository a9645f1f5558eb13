"""How sequences of models with recurrent layers come by states that are already there."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from puna.engine.caching.snapshots import spacing_of, stops_of, stride_of, worn_out
from puna.engine.sequences.sequence import Sequence
from puna.kv import BLOCK_TOKENS, SequenceTable
from puna.kv.model_kv import ModelKv

_LEAST_SHARED = 32
"""Tokens that are worth waiting for, and a snapshot."""
_MOST_COMPARED = 16
"""Sequences that a new one is compared with. Of many that begin alike, the first few know the beginnings."""


class StatePolicy:
    """A CachePolicy: all computed KV is found by its content, and used up to a snapshot of the state.

    A sequence can begin only where a snapshot was taken, and one is taken only where a step ended. So
    sequences that share a beginning are compared when they start: one computes what they share, takes a
    snapshot where they part, and the others wait for that.
    """

    def __init__(self, kv: ModelKv) -> None:
        self._kv = kv
        self._tree = kv.tree
        self._spacing = spacing_of(kv.state_bytes, kv.block_bytes / BLOCK_TOKENS)
        self._stride = stride_of(self._spacing)
        self._running: dict[tuple[str, bytes], dict[str, Sequence]] = {}  # by beginning, then by sequence id
        self._alike: dict[str, list[tuple[Sequence, int]]] = {}  # tokens that a sequence shares with others

    def admit(self, sequence: Sequence) -> bool:
        assert sequence.num_computed == sequence.table.num_blocks == 0, "admitted with a table"
        cursor = self._tree.start(sequence.namespace, to_disk=sequence.request.cache_to_disk)
        sequence.cursor = cursor
        self._follow(sequence)
        begin, num_matched = sequence.num_computed, min(cursor.num_matched, sequence.num_findable)
        boundaries = sequence.request.boundaries
        sequence.snapshots.begin(begin, stops_of(begin, boundaries, num_matched, self._spacing))
        self._compare(sequence)
        return True

    def catch_up(self, sequence: Sequence, claimed: set[Hashable]) -> bool:  # noqa: ARG002
        if sequence.cursor is None or not sequence.request.cache_prompt:
            return True
        before = sequence.num_computed
        self._follow(sequence)
        if sequence.num_computed > before:
            sequence.snapshots.add_stop(sequence.num_computed)
            sequence.snapshots.latest = sequence.num_computed
        return not any(
            self._computes(other, sequence, num_shared)
            for other, num_shared in self._alike.get(sequence.id, ())
        )

    def reuse_part(self, sequence: Sequence) -> None:
        pass

    def computed(self, sequence: Sequence) -> None:
        position, plan = sequence.num_computed, sequence.snapshots
        if sequence.cursor is None:
            return
        assert position <= sequence.table.state_position, "a state that was not advanced"
        is_far = position < sequence.num_prompt and position - plan.latest >= self._stride
        has_drafts = position < sequence.table.state_position  # behind which the state is
        if (plan.is_stop(position) or is_far) and not has_drafts:
            self._snapshot(sequence)
        elif position // BLOCK_TOKENS > sequence.cursor.num_blocks:
            self._tree.record(sequence.cursor, sequence.table, sequence.tokens[:position])

    def shift(self, sequence: Sequence) -> bool:  # noqa: ARG002
        raise AssertionError("a state cannot be shifted")

    def release(self, sequence: Sequence, *, goes_on: bool) -> None:
        self._forget(sequence)
        cursor, position = sequence.cursor, sequence.num_computed
        if cursor is None or position == 0:
            sequence.table.release()
            return
        tokens = sequence.tokens[:position]
        if sequence.table.state_position == position:
            self._snapshot(sequence)
            # A reply comes back in other words mostly, without its thoughts.
            if goes_on or position < sequence.num_prompt or not sequence.request.boundaries:
                sequence.snapshots.add_stop(position)
        else:
            self._tree.record_tail(cursor, sequence.table, tokens)
        sequence.table.release()
        self._renew(sequence)

    def abandon(self, sequence: Sequence) -> None:
        self._forget(sequence)
        sequence.table.release()

    def idle_tables(self) -> list[SequenceTable]:
        return []

    def empty_idle(self) -> None:
        pass

    def _follow(self, sequence: Sequence) -> None:
        cursor, limit = sequence.cursor, sequence.num_findable
        if sequence.request.cache_prompt and cursor is not None and limit > sequence.num_computed:
            covered = self._tree.follow(cursor, sequence.table, sequence.tokens, limit)
            sequence.skip(covered - sequence.num_computed)

    def _compare(self, sequence: Sequence) -> None:
        """Finds with whom it shares tokens; whoever is to compute them will stop at their end."""
        others = self._running.setdefault(_opening(sequence), {})
        alike = self._alike[sequence.id] = []
        computing = [other for other in others.values() if other.num_pending > 1]
        for other in computing[:_MOST_COMPARED]:
            num_shared = _num_shared(sequence, other)
            alike.append((other, num_shared))
            self._alike[other.id].append((sequence, num_shared))
            for one, waiting in ((other, sequence), (sequence, other)):
                if self._computes(one, waiting, num_shared):
                    one.snapshots.add_stop(min(num_shared, waiting.num_findable))
        others[sequence.id] = sequence

    def _forget(self, sequence: Sequence) -> None:
        others = self._running.get(_opening(sequence), {})
        others.pop(sequence.id, None)
        if not others:
            self._running.pop(_opening(sequence), None)
        for other, _ in self._alike.pop(sequence.id, ()):
            if (alike := self._alike.get(other.id)) is not None:
                alike[:] = [(another, count) for another, count in alike if another is not sequence]

    @staticmethod
    def _computes(other: Sequence, sequence: Sequence, num_shared: int) -> bool:
        """Whether the other one is about to compute what the sequence needs next: it is ahead, or was there
        first.
        """
        end = min(num_shared, sequence.num_findable)
        if end - sequence.num_computed < _LEAST_SHARED or other.is_paused or other.cursor is None:
            return False
        ahead = other.num_computed - sequence.num_computed
        return other.num_computed < end and (ahead > 0 or (ahead == 0 and other.order < sequence.order))

    def _snapshot(self, sequence: Sequence) -> None:
        assert sequence.cursor is not None
        position = sequence.num_computed
        self._tree.snapshot(sequence.cursor, sequence.table, sequence.tokens[:position])
        sequence.snapshots.latest = position
        for worn in worn_out(self._positions(sequence), sequence.snapshots.useful, self._spacing):
            self._tree.age(sequence.cursor, sequence.tokens, worn)

    def _renew(self, sequence: Sequence) -> None:
        """What is worth its memory goes after the KV that leads to it: without that it is of no use."""
        assert sequence.cursor is not None
        positions, useful = self._positions(sequence), sequence.snapshots.useful
        end = {sequence.num_computed} - useful
        worn = end.union(worn_out([p for p in positions if p not in end], useful, self._spacing))
        for position in reversed(positions):
            change = self._tree.age if position in worn else self._tree.renew
            change(sequence.cursor, sequence.tokens, position)

    def _positions(self, sequence: Sequence) -> list[int]:
        """Of the snapshots on its path."""
        assert sequence.cursor is not None
        return self._tree.snapshots(sequence.cursor, sequence.tokens[: sequence.num_computed])


def _opening(sequence: Sequence) -> tuple[str, bytes]:
    """The same for all with which it may share tokens."""
    return sequence.namespace, sequence.history[: min(_LEAST_SHARED, sequence.num_prompt)].tobytes()


def _num_shared(one: Sequence, other: Sequence) -> int:
    length = min(one.num_tokens, other.num_tokens)
    differs = one.history[:length] != other.history[:length]
    first = int(np.argmax(differs))
    return first if differs[first] else length
