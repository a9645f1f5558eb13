"""Names and errors of parts."""

from __future__ import annotations

from puna.convert.errors import ConversionError
from puna.convert.sources.header import SourceTensor


def renamed(name: str, kind: str) -> str:
    """The name of another tensor of the same layer: `blk.<layer>.<kind>.<ending>`."""
    block, layer, rest = name.split(".", 2)
    return f"{block}.{layer}.{kind}.{rest.rpartition('.')[2]}"


def check_shape(tensor: SourceTensor, fits: bool) -> None:
    """Raises ConversionError."""
    if not fits:
        raise ConversionError(f"tensor {tensor.name[:100]!r} cannot have the shape {tensor.shape}")
