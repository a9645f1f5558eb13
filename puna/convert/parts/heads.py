"""What attention is computed with, in other orders of heads."""

from __future__ import annotations

from typing import NamedTuple

from puna.convert.models.config import Config
from puna.convert.models.sizes import falcon_kv_heads, num_heads, num_kv_heads, width
from puna.convert.parts.naming import check_shape, renamed
from puna.convert.planned_tensor import PlannedTensor
from puna.convert.sources.values import Rows

GROUPED = "attn_grouped_qkv"
LATENT = "attn_kv_b"
"""Names of our own for what is several tensors in GGUF."""


class _Apart(NamedTuple):
    queries: tuple[Rows, ...]
    keys: tuple[Rows, ...]
    values: tuple[Rows, ...]


def _apart(rows: Rows, num_groups: int, config: Config) -> _Apart:
    """Of each group some heads' queries, then a key and a value that they share."""
    heads = num_heads(config)
    check_shape(rows.tensor, heads > 0 and 0 < num_groups <= heads and heads % num_groups == 0)
    dim, queries = width(config) // heads, heads // num_groups
    group = (queries + 2) * dim
    check_shape(rows.tensor, len(rows.tensor.shape) == 2 and rows.count == num_groups * group)
    begins = range(0, rows.count, group)
    return _Apart(
        tuple(rows.part(begin, queries * dim) for begin in begins),
        tuple(rows.part(begin + queries * dim, dim) for begin in begins),
        tuple(rows.part(begin + (queries + 1) * dim, dim) for begin in begins),
    )


def grouped_heads(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    """As InternLM 2 has them: three tensors, of which two are rotated in pairs."""
    apart = _apart(rows, num_kv_heads(config), config)
    head_dim = width(config) // num_heads(config)
    return [
        PlannedTensor(
            name=renamed(name, kind),
            shape=(sum(part.count for part in parts), rows.tensor.shape[1]),
            dtype=rows.tensor.dtype,
            rows=parts,
            pair_rows=0 if kind == "attn_v" else head_dim,
        )
        for kind, parts in zip(("attn_q", "attn_k", "attn_v"), apart, strict=True)
    ]


def falcon_heads(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    """One tensor: all queries, all keys, all values."""
    apart = _apart(rows, falcon_kv_heads(config), config)
    tensor = rows.tensor
    parts = apart.queries + apart.keys + apart.values
    return [PlannedTensor(name=name, shape=tensor.shape, dtype=tensor.dtype, rows=parts)]


def transposed(name: str, rows: Rows, _: Config) -> list[PlannedTensor]:
    """A matrix whose rows are columns in GGUF. Vectors stay."""
    tensor = rows.tensor
    check_shape(tensor, len(tensor.shape) in (1, 2))
    return [
        PlannedTensor(
            name=name,
            shape=tensor.shape[::-1],
            dtype=tensor.dtype,
            rows=(rows,),
            is_transposed=len(tensor.shape) == 2,
        )
    ]


def keys_and_values(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    """What makes keys and values of a latent vector, head by head; keys' matrices are transposed."""
    tensor, heads = rows.tensor, num_heads(config)
    num_keys, num_values = config.integer("qk_nope_head_dim"), config.integer("v_head_dim")
    both = num_keys + num_values
    check_shape(tensor, len(tensor.shape) == 2 and tensor.shape[0] == heads * both)
    rank = tensor.shape[1]

    def part(kind: str, begin: int, count: int, shape: tuple[int, ...]) -> PlannedTensor:
        return PlannedTensor(
            name=renamed(name, kind),
            shape=(heads, *shape),
            dtype=tensor.dtype,
            rows=tuple(rows.part(head * both + begin, count) for head in range(heads)),
            is_transposed=kind == "attn_k_b",
        )

    return [
        part("attn_k_b", 0, num_keys, (rank, num_keys)),
        part("attn_v_b", num_keys, num_values, (num_values, rank)),
    ]
