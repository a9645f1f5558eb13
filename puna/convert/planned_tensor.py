"""A tensor that is to be written, and of which rows of the source it is made."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from puna.convert.sources.mxfp4 import Mxfp4
from puna.convert.sources.values import Rows


class PlannedTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor of the output."""

    name: str
    shape: tuple[int, ...]
    """Slowest first, as in NumPy."""
    dtype: str
    """Of the source's values."""
    rows: tuple[Rows, ...] = ()
    """One after the other they are all of its rows."""
    values: NDArray[np.float32] | None = None
    """In place of rows."""
    pair_rows: int = 0
    """So many rows are a head, of which the first half is interleaved with the second; 0: all stay."""
    change: Callable[[NDArray[np.float32]], NDArray[np.float32]] | None = None
    """What becomes of each value."""
    columns: NDArray[np.intp] | None = None
    """Which of the source's, in this order; None: all."""
    is_transposed: bool = False
    """Each of `rows` is a matrix whose rows are columns here."""
    mxfp4: Mxfp4 | None = None
    """In place of rows."""

    @property
    def is_lossless(self) -> bool:
        """The source's bytes can be taken as they are."""
        has_all = self.values is None and self.mxfp4 is None and self.columns is None
        is_same = self.change is None and not self.is_transposed
        return has_all and is_same and all(rows.scale is None for rows in self.rows)
