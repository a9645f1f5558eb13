"""Experts' matrices, and feed-forward layers, whose gates lie with what they gate."""

from __future__ import annotations

import numpy as np

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.sizes import num_experts
from puna.convert.parts.naming import check_shape, renamed
from puna.convert.planned_tensor import PlannedTensor
from puna.convert.sources.header import SourceTensor
from puna.convert.sources.mxfp4 import TYPE, find_mxfp4
from puna.convert.sources.values import Rows

GATE_AND_UP = "ffn_gate_up_exps"
GATE_AND_UP_DENSE = "ffn_gate_up"
GATE_AND_UP_SHARED = "ffn_gate_up_shexp"
DOWN_SHARED = "ffn_down_shexp"
"""Names of our own for what is several tensors, or one of two, in GGUF."""
_EXPERTS = ("ffn_gate_exps", "ffn_up_exps")
_SHARED = ("ffn_gate_shexp", "ffn_up_shexp")
_DENSE = ("ffn_gate", "ffn_up")


def gate_and_up(name: str, rows: Rows, _: Config) -> list[PlannedTensor]:
    """Of each expert the first half of the rows is the gate."""
    check_shape(rows.tensor, len(rows.tensor.shape) == 3)
    return _halves(name, rows, _EXPERTS)


def dense_gate_and_up(name: str, rows: Rows, _: Config) -> list[PlannedTensor]:
    """Likewise, where there are no experts."""
    return _halves(name, rows, _DENSE)


def shared_gate_and_up(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    """Likewise, of the expert that all tokens share; without others it is the feed-forward layer."""
    return _halves(name, rows, _SHARED if num_experts(config) else _DENSE)


def shared_down(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    """What lies behind them."""
    kind = "ffn_down_shexp" if num_experts(config) else "ffn_down"
    tensor = rows.tensor
    return [PlannedTensor(name=renamed(name, kind), shape=tensor.shape, dtype=tensor.dtype, rows=(rows,))]


def _halves(name: str, rows: Rows, kinds: tuple[str, str]) -> list[PlannedTensor]:
    tensor = rows.tensor
    check_shape(tensor, len(tensor.shape) in (2, 3) and tensor.shape[-2] % 2 == 0)
    *experts, both, width = tensor.shape
    half = both // 2
    return [
        PlannedTensor(
            name=renamed(name, kind),
            shape=(*experts, half, width),
            dtype=tensor.dtype,
            rows=tuple(rows.part(at, half) for at in range(begin, rows.count, both)),
        )
        for kind, begin in zip(kinds, (0, half), strict=True)
    ]


def interleaved_gate_and_up(name: str, rows: Rows, _: Config) -> list[PlannedTensor]:
    """Of biases: of each expert every second value is the gate's."""
    tensor = rows.tensor
    if len(tensor.shape) != 2 or tensor.shape[1] % 2:
        raise ConversionError(f"tensor {tensor.name[:100]!r}: experts can be converted in MXFP4 only")
    return [
        PlannedTensor(
            name=renamed(name, kind),
            shape=(tensor.shape[0], tensor.shape[1] // 2),
            dtype=tensor.dtype,
            rows=(rows,),
            columns=np.arange(first, tensor.shape[1], 2),
        )
        for first, kind in enumerate(_EXPERTS)
    ]


def mxfp4(name: str, kind: str, blocks: SourceTensor, scales: SourceTensor | None) -> list[PlannedTensor]:
    """Of gates and what they gate, row by row in turn."""
    names = [renamed(name, part) for part in _EXPERTS] if kind == GATE_AND_UP else [name]
    parts = find_mxfp4(blocks, scales, len(names))
    return [
        PlannedTensor(name=name, shape=part.shape, dtype=TYPE, mxfp4=part)
        for name, part in zip(names, parts, strict=True)
    ]


def flat_experts(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    """All experts' rows in one matrix, one expert after the other."""
    tensor, count = rows.tensor, num_experts(config)
    check_shape(tensor, len(tensor.shape) == 2 and count > 0 and tensor.shape[0] % count == 0)
    shape = (count, tensor.shape[0] // count, tensor.shape[1])
    return [PlannedTensor(name=name, shape=shape, dtype=tensor.dtype, rows=(rows,))]


def flat_transposed_experts(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    """Likewise, of matrices whose rows are columns in GGUF."""
    (plain,) = flat_experts(name, rows, config)
    count, inner, width = plain.shape
    return [
        PlannedTensor(
            name=name,
            shape=(count, width, inner),
            dtype=plain.dtype,
            rows=tuple(rows.part(expert * inner, inner) for expert in range(count)),
            is_transposed=True,
        )
    ]
