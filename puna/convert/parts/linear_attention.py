"""Linear attention: heads of keys, each with one or more heads of values.

Safetensors have the value heads of a key head together; the engine, as llama.cpp, the first ones of all key
heads, then the second ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.sizes import MAX_HEADS
from puna.convert.parts.naming import check_shape, renamed
from puna.convert.planned_tensor import PlannedTensor
from puna.convert.sources.values import Rows

QKVZ = "ssm_in"
"""GGUF has two tensors in its place."""


class _Heads(NamedTuple):
    keys: int
    values: int
    key_dim: int
    value_dim: int

    @property
    def order(self) -> NDArray[np.intp]:
        """Of the value heads in GGUF."""
        return np.arange(self.values).reshape(self.keys, -1).T.reshape(-1)


def _read(config: Config) -> _Heads:
    keys = config.integer("linear_num_key_heads", maximum=MAX_HEADS)
    values = config.integer("linear_num_value_heads", maximum=MAX_HEADS)
    if not keys or not values or values % keys:
        raise ConversionError(f"config.json: {values} heads of values cannot share {keys} of keys")
    return _Heads(
        keys, values, config.integer("linear_key_head_dim"), config.integer("linear_value_head_dim")
    )


def queries_to_gates(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    """Qwen3-Next has queries, keys, values and gates together for each head of keys."""
    tensor, heads = rows.tensor, _read(config)
    keys, values = heads.key_dim, heads.values // heads.keys * heads.value_dim
    both = 2 * (keys + values)
    check_shape(tensor, len(tensor.shape) == 2 and tensor.shape[0] == heads.keys * both)

    def of_heads(begin: int, count: int) -> tuple[Rows, ...]:
        return tuple(rows.part(head * both + begin, count) for head in range(heads.keys))

    parts = {
        "attn_qkv": of_heads(0, keys) + of_heads(keys, keys) + of_heads(2 * keys, values),
        "attn_gate": of_heads(2 * keys + values, values),
    }
    return [
        PlannedTensor(
            name=renamed(name, kind),
            shape=(sum(part.count for part in part_rows), tensor.shape[1]),
            dtype=tensor.dtype,
            rows=part_rows,
        )
        for kind, part_rows in parts.items()
    ]


def values_behind_keys(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    """Rows of queries and keys, which stay, then of values."""
    heads = _read(config)
    return _in_turn(name, rows, heads, 2 * heads.keys * heads.key_dim, heads.value_dim)


def values_alone(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    """Rows of values."""
    heads = _read(config)
    return _in_turn(name, rows, heads, 0, heads.value_dim)


def row_of_each_head(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    return _in_turn(name, rows, _read(config), 0, 1)


def _in_turn(name: str, rows: Rows, heads: _Heads, begin: int, dim: int) -> list[PlannedTensor]:
    tensor = rows.tensor
    check_shape(tensor, len(tensor.shape) in (2, 3) and rows.count == begin + heads.values * dim)
    parts = [rows.part(0, begin)] if begin else []
    parts += [rows.part(begin + int(head) * dim, dim) for head in heads.order]
    shape = (rows.count, tensor.num_columns)
    return [PlannedTensor(name=name, shape=shape, dtype=tensor.dtype, rows=tuple(parts))]


def value_of_each_head(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    """A vector."""
    return _columns_in_turn(name, rows, _read(config), 1)


def columns_of_values(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    """A matrix that is multiplied with them."""
    heads = _read(config)
    return _columns_in_turn(name, rows, heads, heads.value_dim)


def _columns_in_turn(name: str, rows: Rows, heads: _Heads, dim: int) -> list[PlannedTensor]:
    tensor = rows.tensor
    check_shape(tensor, tensor.num_columns == heads.values * dim)
    columns = (heads.order[:, None] * dim + np.arange(dim)).reshape(-1)
    is_same = heads.keys == heads.values
    return [
        PlannedTensor(
            name=name,
            shape=tensor.shape,
            dtype=tensor.dtype,
            rows=(rows,),
            columns=None if is_same else columns,
        )
    ]
