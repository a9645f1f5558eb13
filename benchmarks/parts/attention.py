"""How fast is attention over the paged cache? `python -m benchmarks.parts.attention [kv types]`

Microseconds of one layer, storing the new keys and values included. Decoding (one token at some depth)
also shows the GB/s at which keys and values are read: "cached" runs one layer again and again, "memory" as
many layers as exceed the caches, as a model does. Prefill shows Gflop/s of the products that the causal mask
leaves. Figures are the best of several runs: on a machine that others use too, they say what the kernels can
do, not what a busy machine delivers.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np

from puna import _native
from puna.gguf import GgufFile

BLOCK_TOKENS = 16
VOCABULARY = 256
MEMORY_BYTES = 96 << 20
DEPTHS = (512, 2048, 8192)
PREFILL = ((512, 0), (512, 2048))  # (new tokens, depth before them)


class Shape(NamedTuple):
    heads: int
    kv_heads: int
    head_dim: int
    latent_dim: int = 0  # columns of the keys that are the values; 0: values are kept

    @property
    def value_dim(self) -> int:
        return self.latent_dim or self.head_dim

    @property
    def widths(self) -> dict[str, int]:
        kv = self.kv_heads * self.head_dim
        values = {} if self.latent_dim else {"v": kv}
        return {"q": self.heads * self.head_dim, "k": kv, **values}


SHAPES = {
    "SmolLM2-135M": Shape(9, 3, 64),
    "Qwen3-4B": Shape(32, 8, 128),
    "DeepSeek-V2-Lite": Shape(16, 1, 576, 512),
    "DeepSeek-V2-Lite, expanded": Shape(16, 16, 192),
}


class Bench:
    """A program of nothing but attention layers, over keys and values of one sequence of random tokens."""

    def __init__(self, file: _native.GgufFile, shape: Shape, kv_type: str, isa: str, threads: int) -> None:
        self._file, self._shape, self._kv_type, self._isa = file, shape, kv_type, isa
        self._pool = _native.ThreadPool(threads)
        self._tokens = np.random.default_rng(0).integers(0, VOCABULARY, 1 << 16).astype(np.int32)

    def seconds(self, new: int, depth: int, layers: int, budget_s: float) -> float:
        """Of one layer with `new` tokens behind `depth` others."""
        program = self._program(layers)
        blocks = -(-(depth + new) // BLOCK_TOKENS)
        (group,) = program.groups
        arena = _native.Arena(blocks, group.block_bytes)
        table = np.arange(blocks, dtype=np.int32)[::-1].reshape(1, -1).copy()

        def run(begin: int, end: int) -> float:
            positions = np.arange(begin, end, dtype=np.int32)
            starts = np.array([0, end - begin], np.int32)
            rows = np.array([end - begin - 1], np.int32)
            start = time.perf_counter()
            program.run(self._pool, [arena], self._tokens[begin:end], positions, starts, [table], rows)
            return time.perf_counter() - start

        for begin in range(0, depth, 512):
            run(begin, min(begin + 512, depth))
        best, end = float("inf"), time.perf_counter() + budget_s
        while time.perf_counter() < end:
            best = min(best, run(depth, depth + new))
        arena.close()
        return best / layers

    def kv_bytes(self, tokens: int) -> int:
        """Of one layer."""
        return self._program(1).groups[0].block_bytes * tokens // BLOCK_TOKENS

    def _program(self, layers: int) -> _native.Program:
        builder = _native.ProgramBuilder(self._file, self._isa, self._kv_type)
        shape = self._shape
        inputs = [builder.buffer(width) for width in shape.widths.values()]
        for buffer, name in zip(inputs, shape.widths, strict=True):
            builder.op("Embed", [], [buffer], [name])
        out, result = (builder.buffer(shape.heads * shape.value_dim) for _ in range(2))
        sizes = {"num_heads": shape.heads, "head_dim": shape.head_dim, "scale": shape.head_dim**-0.5}
        for layer in range(layers):
            if shape.latent_dim:
                builder.op("LatentAttention", inputs, [out], layer=layer, value_dim=shape.latent_dim, **sizes)
            else:
                kind = {"num_kv_heads": shape.kv_heads, "window": 0, "softcap": 0.0}
                builder.op("Attention", inputs, [out], layer=layer, **kind, **sizes)
        builder.op("Rows", [out], [result])
        return builder.build(result)


def cells(bench: Bench, shape: Shape, budget_s: float) -> Iterator[str]:
    for depth in DEPTHS:
        layer_bytes = bench.kv_bytes(depth)
        for layers in (1, max(2, MEMORY_BYTES // layer_bytes)):
            taken = bench.seconds(1, depth, layers, budget_s)
            yield f"{taken * 1e6:.1f} us ({layer_bytes / taken / 1e9:.1f} GB/s)"
    for new, depth in PREFILL:
        pairs = new * depth + new * (new + 1) // 2
        taken = bench.seconds(new, depth, 1, budget_s)
        flops = 2 * pairs * shape.heads * (shape.head_dim + shape.value_dim)
        yield f"{taken * 1e3:.1f} ms ({flops / taken / 1e9:.0f} Gflop/s)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("types", nargs="*", default=["f16", "f32", "q8_0", "q4_0"], metavar="type")
    parser.add_argument("--shape", choices=SHAPES, default="SmolLM2-135M")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="per figure")
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    header = [f"decode at {depth}, {where}" for depth in DEPTHS for where in ("cached", "memory")]
    header += [f"prefill {new} at {depth}" for new, depth in PREFILL]
    print(f"{arguments.shape}, {arguments.threads} thread(s), {arguments.isa}\n")
    print("| " + " | ".join(["KV", *header]) + " |")
    print("|---" * (len(header) + 1) + "|")
    with tempfile.TemporaryDirectory() as directory:
        file = write_tables(Path(directory) / "tables.gguf", shape)
        for kv_type in arguments.types:
            bench = Bench(file, shape, kv_type, arguments.isa, arguments.threads)
            row = list(cells(bench, shape, arguments.seconds))
            print("| " + " | ".join([kv_type, *row]) + " |", flush=True)


def write_tables(path: Path, shape: Shape) -> _native.GgufFile:
    """Random queries, keys and values to be looked up by token."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "attention")
    for name, width in shape.widths.items():
        writer.add_tensor(name, rng.standard_normal((VOCABULARY, width)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufFile(path).native


if __name__ == "__main__":
    main()
