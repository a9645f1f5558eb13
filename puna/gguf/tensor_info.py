"""What the index of a GGUF file says of a tensor."""

from __future__ import annotations

import msgspec


class TensorInfo(msgspec.Struct, frozen=True):
    """One entry of the tensor index."""

    name: str
    type: str
    """As ggml names it ("Q4_K"); "type 99" for one that is not known."""
    shape: tuple[int, ...]
    """In GGUF's order, fastest first: (columns, rows)."""
    offset: int
    """Of the data, in bytes from the start of the file; of a tensor that is joined, of the first matrix."""
    num_bytes: int
    """0 if the type is not known."""
