"""What is to be known of a GGUF file that becomes part of a model."""

from __future__ import annotations

import msgspec


class WeightsDescription(msgspec.Struct, frozen=True):
    """What a GGUF file says about itself; whoever read it has checked that it is one."""

    architecture: str
    parameter_size: str
    """Such as "134.52M"."""
    quantization: str
    """Such as "Q4_1"."""
    kind: str = "model"
    """Or "adapter", "projector", ..."""
    num_parts: int = 1
    """Of the split file that it is one of."""
