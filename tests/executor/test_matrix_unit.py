"""Encoders' matrix products, on the processor's matrix unit where it has one: shapes of all sorts."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from puna._native import ProgramBuilder, ask_for_matrix_unit
from tests.executor.toy import Chunk, Encoded, Runner, build, decoded, embedded, encoded, rows_of, write_gguf

pytestmark = pytest.mark.native

TOLERANCE = {"F32": 2e-5, "F16": 2e-5, "BF16": 2e-5, "Q8_0": 8e-3}
"""Of the product's size."""


@pytest.mark.parametrize("weight_type", TOLERANCE)
@pytest.mark.parametrize(("cols", "rows"), [(64, 5), (96, 50), (352, 33), (32, 128)])
def test_products(weight_type: str, cols: int, rows: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(cols)
    x, residual, bias, values = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((70, cols), (70, rows), (rows,), (rows, cols))
    )
    weight = encoded(values, weight_type)
    tables = {"x": x, "residual": residual, "bias": bias, "weight": weight}

    def define(b: ProgramBuilder) -> int:
        b.set_encoder()
        inputs, out = [embedded(b, "x", cols), embedded(b, "residual", rows)], b.buffer(rows)
        b.op("Linear", inputs, [out], ["weight", "bias"])
        return rows_of(b, out, rows)

    runner = Runner(build(write_gguf(tmp_path / "op.gguf", tables), "auto", define))
    found = runner.run([Chunk(range(70))])
    product = x.astype(float) @ decoded(weight).astype(float).T
    assert np.abs(found - (product + bias + residual)).max() < TOLERANCE[weight_type] * np.sqrt(cols) * 3
    for begin, end in ((0, 1), (5, 21), (30, 63)):
        alone = runner.run([Chunk(range(begin, end))], num_threads=1)
        assert alone.tobytes() == found[begin:end].tobytes()


def as_bfloat16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def every_byte(rows: int, blocks: int) -> Encoded:
    """Q8_0 with every byte, and scales of all sorts: zeros, the least, the largest, negative ones."""
    scales = np.array([0, 0x8000, 1, 0x83FF, 0x0400, 0x3C01, 0xB555, 0x2E66, 0x7BFF, 0xFBFF], np.uint16)
    data = np.empty((rows, blocks, 34), np.uint8)
    data[..., :2] = np.resize(scales, rows * blocks)[:, None].view(np.uint8).reshape(rows, blocks, 2)
    data[..., 2:] = np.resize(np.arange(256, dtype=np.uint8), (rows, blocks, 32))
    return Encoded(data.reshape(rows, -1), gguf.GGMLQuantizationType.Q8_0)


@pytest.mark.skipif(not ask_for_matrix_unit(), reason="other kernels round activations to int8")
@pytest.mark.parametrize(
    ("weight_type", "cols", "rows"),
    [
        (kind, *shape)
        for kind in TOLERANCE
        for shape in ((32, 5), (96, 81), (40, 33))
        if kind != "Q8_0" or shape[0] != 40
    ],
)
def test_weights_to_the_bit(weight_type: str, cols: int, rows: int, tmp_path: Path) -> None:
    """A token with a one and else zeros finds a column of the weight."""
    values = np.random.default_rng(cols).standard_normal((rows, cols)).astype(np.float32)
    weight = every_byte(rows, cols // 32) if weight_type == "Q8_0" else encoded(values, weight_type)
    expected = as_bfloat16(decoded(weight))
    if weight_type != "Q8_0":
        expected = expected + as_bfloat16(decoded(weight) - expected)

    def define(b: ProgramBuilder) -> int:
        b.set_encoder()
        inputs, out = [embedded(b, "x", cols)], b.buffer(rows)
        b.op("Linear", inputs, [out], ["weight", None])
        return rows_of(b, out, rows)

    tables = {"x": np.eye(cols, dtype=np.float32), "weight": weight}
    found = Runner(build(write_gguf(tmp_path / "op.gguf", tables), "auto", define)).run([Chunk(range(cols))])
    np.testing.assert_array_equal(found, expected.T)
