"""Encoders' matrix products, on the processor's matrix unit where it has one: shapes of all sorts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from puna._native import ProgramBuilder
from tests.executor.toy import Chunk, Runner, build, decoded, embedded, encoded, rows_of, write_gguf

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
