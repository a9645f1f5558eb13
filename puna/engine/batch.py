"""From the scheduler's decision to the flat arrays of one step."""

from __future__ import annotations

from collections.abc import Sequence as Items
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from puna.backends.base import Batch
from puna.engine.sequence import Sequence


class Slice(NamedTuple):
    """The next `num_tokens` pending tokens of a sequence."""

    sequence: Sequence
    num_tokens: int

    @property
    def completes(self) -> bool:
        """Whether nothing is pending after it, so that the next token can be drawn."""
        return self.num_tokens == self.sequence.num_pending


def build_batch(slices: Items[Slice]) -> Batch:
    """One row to sample for each slice that completes its sequence, in the order of the slices."""
    starts = [0, *accumulate(s.num_tokens for s in slices)]
    tokens, positions = np.empty((2, starts[-1]), dtype=np.int32)
    for (sequence, num_tokens), start, end in zip(slices, starts, starts[1:], strict=False):
        first = sequence.position
        tokens[start:end] = sequence.pending_tokens(num_tokens)
        positions[start:end] = np.arange(first, first + num_tokens) if num_tokens > 1 else first
    rows = [end - 1 for s, end in zip(slices, starts[1:], strict=True) if s.completes]
    return Batch(
        tokens=tokens,
        positions=positions,
        sequence_starts=np.array(starts, dtype=np.int32),
        block_tables=_block_tables([s.sequence for s in slices]),
        rows=np.array(rows, dtype=np.int32),
        num_threads=_num_threads([s.sequence for s in slices]),
    )


def _num_threads(sequences: Items[Sequence]) -> int | None:
    """As many as the least modest of them wants: nobody is slowed down by another's wish."""
    limits = [sequence.request.num_threads for sequence in sequences]
    return max((limit for limit in limits if limit is not None), default=None) if None not in limits else None


def _block_tables(sequences: Items[Sequence]) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    """[S, B]; entries past the end of a sequence's table are 0 and never read."""
    width = max(sequence.table.num_blocks for sequence in sequences)
    tables = np.zeros((len(sequences), width), dtype=np.int32)
    for row, sequence in zip(tables, sequences, strict=True):
        row[: sequence.table.num_blocks] = sequence.table.array
    return tables
