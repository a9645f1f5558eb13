"""Which type each tensor gets where none is asked for: that of the source, as far as GGUF has it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from puna.convert.planned_tensor import PlannedTensor

_ALWAYS_F32 = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_inp_shexp.weight",
    "shortconv.conv.weight",
    "ssm_conv1d.weight",
    "position_embd.weight",
    "token_types.weight",
)


def stays_f32(tensor: PlannedTensor) -> bool:
    """Whatever other weights are: the reference computes with these in F32 only."""
    name = tensor.name
    return len(tensor.shape) < 2 or not name.endswith(".weight") or name.endswith(_ALWAYS_F32)


def source_types(planned: Sequence[PlannedTensor]) -> dict[str, str]:
    """By name. What GGUF has no type for becomes the next larger one without loss, F8 with its scale BF16."""
    return {
        tensor.name: "F32" if stays_f32(tensor) else _NEXT.get(tensor.dtype, tensor.dtype)
        for tensor in planned
    }


_NEXT = {"F8_E4M3": "BF16", "F64": "F32"}


def most_frequent(planned: Sequence[PlannedTensor], types: dict[str, str]) -> str:
    """The type that most weights have."""
    weights: Counter[str] = Counter()
    for tensor in planned:
        weights[types[tensor.name]] += math.prod(tensor.shape)
    return max(weights, key=lambda type_name: weights[type_name])
