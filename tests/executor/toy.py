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
    """Tokens of one sequence in a step, from `position` on, in the given KV blocks."""

    tokens: Sequence[int]
    blocks: Sequence[int] = ()
    position: int = 0


@dataclass
class Runner:
    """A program with its threads and memory. Blocks start as NaN: what is never written must not matter."""

    program: Program
    num_blocks: int = 32
    num_threads: int = 2
    arena: Arena = field(init=False)
    pool: ThreadPool = field(init=False)

    def __post_init__(self) -> None:
        self.pool = ThreadPool(self.num_threads)
        self.arena = Arena(self.num_blocks, self.program.block_bytes or 64)
        for block in range(self.num_blocks):
            self.arena.block(block)[:] = 0xFF

    def run(
        self, chunks: Sequence[Chunk], rows: Sequence[int] | None = None, num_threads: int | None = None
    ) -> NDArray[np.float32]:
        """The result for `rows`, or for all tokens; a copy."""
        lengths = [len(chunk.tokens) for chunk in chunks]
        tables = np.full((len(chunks), max((len(c.blocks) for c in chunks), default=0)), -1)
        for table, chunk in zip(tables, chunks, strict=True):
            table[: len(chunk.blocks)] = chunk.blocks
        arrays = (
            np.concatenate([c.tokens for c in chunks]) if chunks else np.zeros(0),
            np.concatenate([c.position + np.arange(len(c.tokens)) for c in chunks])
            if chunks
            else np.zeros(0),
            np.cumsum([0, *lengths]),
            tables,
            np.arange(sum(lengths)) if rows is None else np.array(rows),
        )
        tokens, positions, starts, tables, rows = (a.astype(np.int32) for a in arrays)
        return self.program.run(
            self.pool, self.arena, tokens, positions, starts, tables, rows, num_threads
        ).copy()


def build(file: GgufFile, isa: str, define: Callable[[ProgramBuilder], int], kv_type: str = "f16") -> Program:
    """A program whose result is the chosen rows of the buffer that `define` returns."""
    builder = ProgramBuilder(file, isa, kv_type)
    return builder.build(define(builder))


def rows_of(builder: ProgramBuilder, x: int, width: int) -> int:
    out = builder.buffer(width)
    builder.rows(out, x)
    return out


def embedded(builder: ProgramBuilder, name: str, width: int) -> int:
    """A buffer of the rows of tensor `name` that the tokens name."""
    out = builder.buffer(width)
    builder.embed(out, name)
    return out
