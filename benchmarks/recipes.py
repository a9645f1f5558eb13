"""Which type llama-quantize gives each tensor: the mixtures that GGUF files are published in."""

from __future__ import annotations

from dataclasses import dataclass

FILE_TYPES = {"F16": 1, "Q4_0": 2, "Q8_0": 7, "Q4_K_M": 15}
"""general.file_type"""


@dataclass(frozen=True)
class Shape:
    """A matrix of the model, and what decides on its type."""

    name: str
    rows: int
    cols: int
    layer: int
    num_layers: int
    is_output: bool
    """Whether it makes the logits: output.weight, or the embedding where they are tied."""


def type_of(shape: Shape, mixture: str) -> str:
    """The GGUF type of a matrix in a mixture (a key of FILE_TYPES)."""
    if mixture in ("F16", "Q8_0"):
        return mixture
    if mixture == "Q4_0":
        return _fitting("Q6_K", shape.cols) if shape.is_output else "Q4_0"
    assert mixture == "Q4_K_M", mixture
    precise = shape.is_output or (
        shape.name.endswith(("attn_v.weight", "ffn_down.weight"))
        and _gets_more_bits(shape.layer, shape.num_layers)
    )
    return _fitting("Q6_K" if precise else "Q4_K", shape.cols)


def _gets_more_bits(layer: int, num_layers: int) -> bool:
    """The first and the last eighth of the layers, and every third in between."""
    eighth = num_layers // 8
    return layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2


def _fitting(weight_type: str, cols: int) -> str:
    """Types with blocks of 256 give way to ones with blocks of 32 where rows are not multiples of 256."""
    return weight_type if cols % 256 == 0 else {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}[weight_type]
