"""Which type llama-quantize gives each tensor: the mixtures that GGUF files are published in."""

from __future__ import annotations

from dataclasses import dataclass

FILE_TYPES = {"F16": 1, "Q4_0": 2, "Q8_0": 7, "Q4_K_M": 15, "MXFP4": 38}
"""general.file_type"""


_NEVER_QUANTIZED = ("ffn_gate_inp.weight", "ssm_conv1d.weight", ".bias")
_PRECISE = ("attn_v.weight", "attn_qkv.weight", "ffn_down.weight", "ffn_down_exps.weight")


@dataclass(frozen=True)
class Shape:
    """A tensor of the model, and what decides on its type. Vectors have no columns."""

    name: str
    rows: int
    cols: int
    layer: int
    num_layers: int
    is_output: bool
    """Whether it makes the logits: output.weight, or the embedding where they are tied."""
    experts: int = 1
    """How many such matrices there are."""

    @property
    def dims(self) -> tuple[int, ...]:
        """The outermost first."""
        matrix = (self.rows, self.cols) if self.cols else (self.rows,)
        return (self.experts, *matrix) if self.experts > 1 else matrix


def type_of(shape: Shape, mixture: str) -> str:
    """The GGUF type of a tensor in a mixture (a key of FILE_TYPES)."""
    if not shape.cols or shape.name.endswith(_NEVER_QUANTIZED):
        return "F32"
    if mixture == "MXFP4":
        return "MXFP4" if shape.experts > 1 else "Q8_0"
    if mixture in ("F16", "Q8_0"):
        return mixture
    if mixture == "Q4_0":
        return _fitting("Q6_K", shape.cols) if shape.is_output else "Q4_0"
    assert mixture == "Q4_K_M", mixture
    precise = shape.is_output or (
        shape.name.endswith(_PRECISE) and _gets_more_bits(shape.layer, shape.num_layers)
    )
    return _fitting("Q6_K" if precise else "Q4_K", shape.cols)


def _gets_more_bits(layer: int, num_layers: int) -> bool:
    """The first and the last eighth of the layers, and every third in between."""
    eighth = num_layers // 8
    return layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2


def _fitting(weight_type: str, cols: int) -> str:
    """Types with blocks of 256 give way to ones with blocks of 32 where rows are not multiples of 256."""
    return weight_type if cols % 256 == 0 else {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}[weight_type]
