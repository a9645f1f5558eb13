"""From the scheduler's decision to the flat arrays of one step."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puna._native import StepControl, TokenMask, gather_rows
from puna.backends.base import Batch
from puna.engine.sequences.sequence import Sequence
from puna.kv import SequenceTable, gather_tables


class Slice:
    """The next `num_tokens` pending tokens of a sequence, and what may come behind the last of them."""

    __slots__ = ("completes", "decodes", "drafts", "num_tokens", "sequence")

    def __init__(self, sequence: Sequence, num_tokens: int) -> None:
        self.sequence = sequence
        self.num_tokens = num_tokens
        self.completes = num_tokens == sequence.num_tokens - sequence.num_computed
        """Nothing is pending after it, so that the next token can be drawn."""
        self.decodes = self.completes and num_tokens == 1 and sequence.num_tokens > sequence.num_prompt
        """It is the token that was drawn last, and nothing else."""
        self.drafts: Items[int] = ()
        """Of its next tokens; only if it completes the sequence."""


class Part(NamedTuple):
    """The part of one sequence that a step computes."""

    tokens: NDArray[np.int32]
    """All of the sequence."""
    begin: int
    num_tokens: int
    position: int
    """Of tokens[begin]."""
    completes: bool
    """Whether next tokens are drawn."""
    drafts: Items[int]
    """Behind the tokens."""
    table: SequenceTable


def batch_of(
    parts: Items[Part],
    num_threads: int | None,
    control: StepControl | None = None,
    masks: Items[TokenMask | None] = (),
) -> Batch:
    """One step of all parts. masks: of each row, if there are any."""
    *rows, tables = zip(*parts, strict=True)
    tokens, positions, starts, wanted, drafts, draft_starts = gather_rows(*rows)
    return Batch(
        tokens=tokens,
        positions=positions,
        sequence_starts=starts,
        block_tables=gather_tables(tables),
        rows=wanted,
        drafts=drafts,
        draft_starts=draft_starts,
        num_threads=num_threads,
        masks=masks,
        control=control,
    )


def num_threads(sequences: Items[Sequence]) -> int | None:
    """The largest limit among them, so that none slows another one down; None: no limit."""
    limits = [sequence.request.num_threads for sequence in sequences]
    return max((limit for limit in limits if limit is not None), default=None) if None not in limits else None


def part_of(s: Slice) -> Part:
    sequence = s.sequence
    return Part(
        sequence.history,
        sequence.num_computed,
        s.num_tokens,
        sequence.position,
        s.completes,
        s.drafts,
        sequence.table,
    )
