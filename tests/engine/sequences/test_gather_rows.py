"""A step's flat arrays hold what each sequence computes, one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna._native import NativeError, gather_rows

pytestmark = pytest.mark.native

PARTS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(0, 99), st.booleans(), st.integers(0, 3)),
    min_size=1,
    max_size=6,
)


@given(parts=PARTS)
def test_parts_lie_one_after_the_other(parts: list[tuple[int, int, int, bool, int]]):
    history = np.arange(100, 120, dtype=np.int32)
    begins, counts, positions, completes, num_drafts = map(list, zip(*parts, strict=True))
    drafts = [list(range(n)) if complete else [] for complete, n in zip(completes, num_drafts, strict=True)]
    arrays = gather_rows([history] * len(parts), begins, counts, positions, completes, drafts)
    tokens, at, starts, rows = (array.tolist() for array in arrays[:4])
    own_drafts = [of_sequence for of_sequence, complete in zip(drafts, completes, strict=True) if complete]
    for i, (begin, count, position, complete, _) in enumerate(parts):
        own = slice(starts[i], starts[i + 1])
        assert tokens[own] == [*range(100 + begin, 100 + begin + count), *drafts[i]]
        assert at[own] == list(range(position, position + count + len(drafts[i])))
        first_row = starts[i + 1] - 1 - len(drafts[i])
        assert [row for row in rows if row in range(own.start, own.stop)] == (
            list(range(first_row, starts[i + 1])) if complete else []
        )
    if any(drafts):
        assert arrays[4].tolist() == [token for of_sequence in own_drafts for token in of_sequence]
        assert np.diff(arrays[5]).tolist() == [len(of_sequence) for of_sequence in own_drafts]
    else:
        assert arrays[4] is arrays[5] is None


@pytest.mark.parametrize(("begin", "count"), [(-1, 1), (3, 1), (0, 4), (1, -1), (2**62, 2**62)])
def test_parts_lie_within_their_sequence(begin: int, count: int):
    with pytest.raises(NativeError, match="outside of its sequence"):
        gather_rows([np.zeros(3, np.int32)], [begin], [count], [0], [True], [[]])
    with pytest.raises(NativeError, match="all of its fields"):
        gather_rows([np.zeros(3, np.int32)], [], [1], [0], [True], [[]])
