"""From the scheduler's decision to the flat arrays of one step."""

from __future__ import annotations

from collections.abc import Sequence as Items
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from puna.backends.base import Batch
from puna.engine.sequence import Sequence


class Slice(NamedTuple):
    """The next `num_tokens` pending tokens of a sequence, and what may come behind the last of them."""

    sequence: Sequence
    num_tokens: int
    drafts: Items[int] = ()
    """Guesses at its next tokens; only if it completes the sequence."""

    @property
    def num_computed(self) -> int:
        return self.num_tokens + len(self.drafts)

    @property
    def decodes(self) -> bool:
        """Whether it is the token that was drawn last, and nothing else."""
        return self.num_tokens == 1 and self.completes and self.sequence.num_generated > 0

    @property
    def completes(self) -> bool:
        """Whether nothing is pending after it, so that the next token can be drawn."""
        return self.num_tokens == self.sequence.num_pending


def build_batch(slices: Items[Slice]) -> Batch:
    """Rows to sample: the last token of each slice that completes its sequence, and its drafts."""
    starts = [0, *accumulate(s.num_computed for s in slices)]
    tokens, positions = np.empty((2, starts[-1]), dtype=np.int32)
    rows: list[int] = []
    for s, start, end in zip(slices, starts, starts[1:], strict=False):
        first, begin_drafts = s.sequence.position, start + s.num_tokens
        tokens[start:begin_drafts] = s.sequence.pending_tokens(s.num_tokens)
        if s.drafts:
            tokens[begin_drafts:end] = s.drafts
        positions[start:end] = np.arange(first, first + end - start) if end - start > 1 else first
        if s.completes:
            rows += range(begin_drafts - 1, end)
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
