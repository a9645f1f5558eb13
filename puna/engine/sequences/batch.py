"""From the scheduler's decision to the flat arrays of one step."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puna._native import StepControl, TokenMask, gather_rows
from puna.backends.base import Batch, DeviceAdapter, DeviceHeadState
from puna.engine.sequences.sequence import Sequence
from puna.kv import SequenceTable, gather_tables

_NO_TOKENS = range(0)


class Slice:
    """The next `num_tokens` pending tokens of a sequence, and what may come behind the last of them."""

    __slots__ = ("completes", "decodes", "drafts", "draws", "num_tokens", "sequence")

    def __init__(self, sequence: Sequence, num_tokens: int) -> None:
        self.sequence = sequence
        self.num_tokens = num_tokens
        self.completes = num_tokens == sequence.num_tokens - sequence.num_computed
        """Nothing is pending after it."""
        self.draws = self.completes and sequence.pool is None
        """The next token is drawn."""
        self.decodes = self.completes and num_tokens == 1 and sequence.num_tokens > sequence.num_prompt
        """It is the token that was drawn last, and nothing else."""
        self.drafts: Items[int] = ()
        """Of its next tokens; only if those are drawn."""

    @property
    def hidden(self) -> range:
        """Of its tokens, those whose hidden states are wanted."""
        if self.sequence.pool is None:
            return range(0)
        begin = self.sequence.num_computed
        wanted = self.sequence.pool.wanted(begin, begin + self.num_tokens)
        return range(wanted.start - begin, wanted.stop - begin)


class Part(NamedTuple):
    """The part of one sequence that a step computes."""

    tokens: NDArray[np.int32]
    """All of the sequence."""
    begin: int
    num_tokens: int
    position: int
    """Of tokens[begin]."""
    draws: bool
    """Whether next tokens are drawn."""
    drafts: Items[int]
    """Behind the tokens."""
    table: SequenceTable
    hidden: range = range(0)
    """Of the tokens to be computed, those whose hidden states are wanted."""
    adapter: DeviceAdapter | None = None
    head: DeviceHeadState | None = None
    """Of the prediction head, which is to keep what it needs of the tokens."""


def batch_of(
    parts: Items[Part],
    num_threads: int | None,
    control: StepControl | None = None,
    masks: Items[TokenMask | None] = (),
    *,
    goes_on: bool = False,
) -> Batch:
    """One step of all parts. masks: of each row, if there are any. goes_on: see Batch."""
    *rows, tables, hidden, adapters, heads = zip(*parts, strict=True)
    tokens, positions, starts, wanted, drafts, draft_starts = gather_rows(*rows)
    return Batch(
        tokens=tokens,
        positions=positions,
        sequence_starts=starts,
        block_tables=gather_tables(tables),
        rows=wanted,
        hidden=_hidden_rows(hidden, starts) if any(hidden) else None,
        drafts=drafts,
        draft_starts=draft_starts,
        num_threads=num_threads,
        masks=masks,
        control=control,
        adapters=adapters if any(adapters) else (),
        heads=heads if any(heads) else (),
        goes_on=goes_on,
    )


def _hidden_rows(hidden: Items[range], starts: NDArray[np.int32]) -> NDArray[np.int32]:
    """hidden: for each part, which of its tokens; starts: the parts' first tokens."""
    rows = [
        np.arange(start + r.start, start + r.stop, dtype=np.int32)
        for r, start in zip(hidden, starts[:-1].tolist(), strict=True)
    ]
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def num_threads(sequences: Items[Sequence]) -> int | None:
    """The largest limit among them, so that none slows another one down; None: no limit."""
    most = 0
    for sequence in sequences:
        if (limit := sequence.request.num_threads) is None:
            return None
        most = max(most, limit)
    return most or None


def part_of(s: Slice) -> Part:
    sequence = s.sequence
    return Part(
        sequence.history,
        sequence.num_computed,
        s.num_tokens,
        sequence.position,
        s.draws,
        s.drafts,
        sequence.table,
        _NO_TOKENS if sequence.pool is None else s.hidden,
        sequence.adapter,
        _head_state(sequence),
    )


def _head_state(sequence: Sequence) -> DeviceHeadState | None:
    """None: its prediction head is off, and what it had of earlier tokens has a gap from now on."""
    if (head := sequence.head) is None:
        return None
    if not head.is_on:
        head.state.forget()
        return None
    return head.state


def part_of_head(sequence: Sequence) -> Part:
    """The latest token, behind which the prediction head drafts."""
    assert sequence.head is not None, "a sequence without a prediction head"
    begin, position = sequence.num_computed, sequence.position
    return Part(sequence.history, begin, 1, position, False, (), sequence.table, head=sequence.head.state)
