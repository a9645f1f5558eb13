"""Tiny GGUF files and programs over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

import puna.gguf
from puna._native import Arena, GgufFile, Program, ProgramBuilder, ThreadPool

BLOCK_TOKENS = 16


@dataclass(frozen=True)
class Encoded:
    """A tensor's bytes in a quantized type, as gguf.quants.quantize gives them."""

    data: NDArray[np.uint8]
    type: gguf.GGMLQuantizationType


def encoded(values: NDArray[np.float32], type_name: str) -> Encoded:
    kind = gguf.GGMLQuantizationType[type_name]
    return Encoded(gguf.quants.quantize(values, kind), kind)


def decoded(tensor: Encoded) -> NDArray[np.float32]:
    return gguf.quants.dequantize(tensor.data, tensor.type)


def write_gguf(path: Path, tensors: Mapping[str, NDArray | Encoded]) -> GgufFile:
    writer = gguf.GGUFWriter(path, "toy")
    for name, tensor in tensors.items():
        if isinstance(tensor, Encoded):
            writer.add_tensor(name, tensor.data, raw_dtype=tensor.type)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return puna.gguf.GgufFile(path).native


@dataclass
class Chunk:
    """Tokens of one sequence in a step, from `position` on, in the given KV blocks.

    tables: the blocks of each group, where they are not the same.
    state: the block with the state before, and that for the state behind.
    num_drafts: of the last tokens.
    """

    tokens: Sequence[int]
    blocks: Sequence[int] = ()
    position: int = 0
    tables: Sequence[Sequence[int]] | None = None
    state: tuple[int, int] = (-1, 0)
    num_drafts: int = 0

    def table(self, group: int, is_state: bool) -> Sequence[int]:
        if is_state:
            return self.state
        return self.blocks if self.tables is None else self.tables[group]


@dataclass
class Runner:
    """A program with its threads and memory. Blocks start as NaN: what is never written must not matter."""

    program: Program
    num_blocks: int = 32
    num_threads: int = 2
    arenas: list[Arena] = field(init=False)
    pool: ThreadPool = field(init=False)

    def __post_init__(self) -> None:
        self.pool = ThreadPool(self.num_threads)
        self.arenas = [Arena(self.num_blocks, group.block_bytes) for group in self.program.groups]
        for arena in self.arenas:
            for block in range(self.num_blocks):
                arena.block(block)[:] = 0xFF

    @property
    def arena(self) -> Arena:
        """Of the only group."""
        (arena,) = self.arenas
        return arena

    def run(
        self, chunks: Sequence[Chunk], rows: Sequence[int] | None = None, num_threads: int | None = None
    ) -> NDArray[np.float32]:
        """The result for `rows`, or for all tokens; a copy."""
        lengths = [len(chunk.tokens) for chunk in chunks]
        tables = [
            _table([chunk.table(i, group.is_state) for chunk in chunks])
            for i, group in enumerate(self.program.groups)
        ]
        num_drafts = [chunk.num_drafts for chunk in chunks]
        drafts = np.cumsum([0, *num_drafts]).astype(np.int32) if any(num_drafts) else None
        arrays = (
            np.concatenate([c.tokens for c in chunks]) if chunks else np.zeros(0),
            np.concatenate([c.position + np.arange(len(c.tokens)) for c in chunks])
            if chunks
            else np.zeros(0),
            np.cumsum([0, *lengths]),
            np.arange(sum(lengths)) if rows is None else np.array(rows),
        )
        tokens, positions, starts, rows = (a.astype(np.int32) for a in arrays)
        result, _ = self.program.run(
            self.pool, self.arenas, tokens, positions, starts, tables, rows, num_threads, None, drafts
        )
        return result.copy()


def _table(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    """-1 behind the end of a row."""
    table = np.full((len(rows), max(map(len, rows), default=0)), -1, np.int32)
    for to, row in zip(table, rows, strict=True):
        to[: len(row)] = row
    return table


def build(file: GgufFile, isa: str, define: Callable[[ProgramBuilder], int], kv_type: str = "f16") -> Program:
    """A program whose result is the chosen rows of the buffer that `define` returns."""
    builder = ProgramBuilder(file, isa, kv_type)
    return builder.build(define(builder))


def attention(
    b: ProgramBuilder,
    qkv: tuple[int, int, int],
    heads: tuple[int, int],
    head_dim: int,
    *,
    layer: int = 0,
    scale: float = 1.0,
    softcap: float = 0.0,
    window: int = 0,
    sinks: str | None = None,
    alibi: float = 0.0,
    chunk: int = 0,
) -> int:
    """heads: of q, and of k and v. sinks: a tensor."""
    out = b.buffer(heads[0] * head_dim)
    sizes = {"num_heads": heads[0], "num_kv_heads": heads[1], "head_dim": head_dim}
    tensors = [] if sinks is None else [sinks]
    kind = {"scale": scale, "softcap": softcap, "window": window, "alibi": alibi, "chunk": chunk}
    b.op("Attention", qkv, [out], tensors, layer=layer, **kind, **sizes)
    return out


def latent_attention(
    b: ProgramBuilder, q: int, k: int, heads: int, head_dim: int, value_dim: int, *, layer: int, scale: float
) -> int:
    out = b.buffer(heads * value_dim)
    sizes = {"num_heads": heads, "head_dim": head_dim, "value_dim": value_dim}
    b.op("LatentAttention", [q, k], [out], layer=layer, scale=scale, **sizes)
    return out


def rows_of(builder: ProgramBuilder, x: int, width: int) -> int:
    out = builder.buffer(width)
    builder.op("Rows", [x], [out])
    return out


def embedded(builder: ProgramBuilder, name: str, width: int) -> int:
    """A buffer of the rows of tensor `name` that the tokens name."""
    out = builder.buffer(width)
    builder.op("Embed", [], [out], [name])
    return out
