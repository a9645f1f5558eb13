"""From the scheduler's decision to the flat arrays of one step."""

from __future__ import annotations

from collections.abc import Sequence as Items
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puna._native import StepControl
from puna.backends.base import Batch
from puna.engine.scheduling.sequence import Sequence
from puna.kv import SequenceTable


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


class Part(NamedTuple):
    """What one sequence has computed in a step."""

    tokens: NDArray[np.int32]
    position: int
    """Of the first of them."""
    table: SequenceTable
    num_rows: int
    """How many of the tokens, the last ones, have a next one drawn: the drafts, and the one before them."""


def batch_of(parts: Items[Part], num_threads: int | None, control: StepControl | None = None) -> Batch:
    """One step of all parts."""
    starts = [0]
    positions: list[int] = []
    rows: list[int] = []
    for part in parts:
        end = starts[-1] + len(part.tokens)
        positions += range(part.position, part.position + len(part.tokens))
        rows += range(end - part.num_rows, end)
        starts.append(end)
    drafts, draft_starts = _drafts([part for part in parts if part.num_rows])
    # Lists become arrays once: for a token of each of many parts, operations on arrays would take longer.
    return Batch(
        tokens=parts[0].tokens if len(parts) == 1 else np.concatenate([part.tokens for part in parts]),
        positions=np.array(positions, dtype=np.int32),
        sequence_starts=np.array(starts, dtype=np.int32),
        block_tables=(_block_tables([part.table for part in parts]),),
        rows=np.array(rows, dtype=np.int32),
        drafts=drafts,
        draft_starts=draft_starts,
        num_threads=num_threads,
        control=control,
    )


def _drafts(parts: Items[Part]) -> tuple[NDArray[np.int32], NDArray[np.int32]] | tuple[None, None]:
    """Those of parts with rows; as in Batch."""
    if all(part.num_rows == 1 for part in parts):
        return None, None
    drafts = [part.tokens[len(part.tokens) - part.num_rows + 1 :] for part in parts]
    return np.concatenate(drafts), np.array([0, *accumulate(map(len, drafts))], dtype=np.int32)


def num_threads(sequences: Items[Sequence]) -> int | None:
    """As many as the least modest of them wants: nobody is slowed down by another's wish."""
    limits = [sequence.request.num_threads for sequence in sequences]
    return max((limit for limit in limits if limit is not None), default=None) if None not in limits else None


def part_of(s: Slice) -> Part:
    """Rows to sample, if it completes its sequence: that of its last token, and of its drafts."""
    tokens = s.sequence.pending_tokens(s.num_tokens)
    if s.drafts:
        tokens = np.concatenate([tokens, np.array(s.drafts, dtype=np.int32)])
    return Part(tokens, s.sequence.position, s.sequence.table, 1 + len(s.drafts) if s.completes else 0)


def _block_tables(tables: Items[SequenceTable]) -> NDArray[np.int32]:
    """[S, B]; entries past the end of a sequence's table are 0 and never read."""
    if len(tables) == 1:
        return tables[0].array[None]
    width = max(table.num_blocks for table in tables)
    array = np.zeros((len(tables), width), dtype=np.int32)
    for row, table in zip(array, tables, strict=True):
        row[: table.num_blocks] = table.array
    return array
