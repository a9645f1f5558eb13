"""Values in the types of GGUF."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pack(values: NDArray[np.float32], type_name: str) -> NDArray[np.generic]:
    """Rows of values in the type."""
    if type_name == "F32":
        return values
    if type_name == "F16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16)
    bits = values.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)
