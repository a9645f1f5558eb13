"""Activations share memory, grow to the largest step and no further, and stay while someone looks at them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna._native import Arena, Program, ProgramBuilder, ThreadPool
from tests.executor.toy import Chunk, Runner, build, embedded, rows_of, write_gguf
from tests.executor.transformer import FFN, VOCABULARY, WIDTH, build_transformer, random_tensors

pytestmark = pytest.mark.native


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_ten_thousand_steps_do_not_grow(tmp_path: Path) -> None:
    """Of every kind: one stream, several, chunks of a prompt, without rows, on fewer threads."""
    runner = Runner(build_transformer(tmp_path, "auto", random_tensors("Q8_0")))
    decodes = [Chunk([7], [1], 3), Chunk([8], [2], 15), Chunk([9], [3, 4], 16)]

    def steps(count: int) -> None:
        for i in range(count // 5):
            runner.run(decodes[:1])
            runner.run(decodes[: 1 + i % 3], num_threads=1 + i % 2)
            runner.run([Chunk(range(1 + i % 40), [5, 6, 7])], rows=[0])
            runner.run([*decodes, Chunk(range(i % 7), [8])], rows=[0, 1, 2])
            runner.run(decodes, rows=[])

    steps(400)
    before, buffers = resident_bytes(), runner.program.buffer_bytes
    steps(10_000)
    assert runner.program.buffer_bytes == buffers
    assert resident_bytes() - before < 2 << 20


def test_layers_share_their_activations(tmp_path: Path) -> None:
    """Memory per token is what a layer needs at its widest, however many layers there are."""

    def chain(layers: int) -> int:
        def define(b: ProgramBuilder) -> int:
            x = embedded(b, "table", WIDTH)
            for _ in range(layers):
                wide, narrow = b.buffer(FFN), b.buffer(WIDTH)
                b.op("Linear", [x], [wide], ["up", None])
                b.op("Linear", [wide], [narrow], ["down", None])
                x = narrow
            return rows_of(b, x, WIDTH)

        rng = np.random.default_rng(0)
        shapes = {"table": (4, WIDTH), "up": (FFN, WIDTH), "down": (WIDTH, FFN)}
        tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        runner = Runner(build(write_gguf(tmp_path / "chain.gguf", tensors), "auto", define))
        runner.run([Chunk([0] * 8)])
        return runner.program.buffer_bytes

    rows = 8 + 2  # the step's, and one of each thread's own
    assert chain(20) == chain(2) == rows * 4 * (WIDTH + FFN + WIDTH)


def test_result_outlives_program_and_later_steps(tmp_path: Path) -> None:
    program = build_transformer(tmp_path, "auto", random_tensors("Q8_0"))

    def run(program: Program, count: int) -> NDArray[np.float32]:
        indexes = np.arange(count, dtype=np.int32)
        tables = np.arange(8, dtype=np.int32)[None]
        arenas = [Arena(8, group.block_bytes) for group in program.groups]
        starts = np.array([0, count], np.int32)
        return program.run(ThreadPool(2), arenas, indexes, indexes, starts, [tables] * 2, indexes)[0]

    small = run(program, 2)
    kept = small.copy()
    run(program, 80)  # moves the activations
    np.testing.assert_array_equal(small, kept)
    del program
    np.testing.assert_array_equal(small, kept)
    assert small.shape == (2, VOCABULARY)
