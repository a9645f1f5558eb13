"""Weights are rounded to the bit as ggml does, whatever the instruction set and the number of threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from puna._native import NativeError, ThreadPool, cpu_info, quantize, write_quantized
from tests import ggml

pytestmark = pytest.mark.oracle

TYPES = ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
COLS = 96


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool(3)
    yield pool
    pool.close()


def rows_of_kinds() -> dict[str, NDArray[np.float32]]:
    """[rows, COLS] of what real weights are, and of what is hard."""
    rng = np.random.default_rng(0)
    bell = rng.standard_normal((500, COLS)).astype(np.float32)
    with np.errstate(over="ignore"):
        kinds = {
            "gaussian": bell,
            "heavy tails": bell**5,
            "every size": bell * np.float32(10) ** rng.uniform(-45, 38, (500, 1)).astype(np.float32),
            "subnormal": rng.integers(-(1 << 25), 1 << 25, bell.shape).astype(np.float32)
            * np.float32(2**-149),
            "halfway": rng.integers(-40, 41, bell.shape).astype(np.float32) / 2,
            "equal magnitudes": rng.integers(-3, 4, bell.shape).astype(np.float32),
            "constant": np.repeat(bell[:, :1], COLS, axis=1),
            "zeros": np.zeros((9, COLS), np.float32),
        }
    infinite = bell.copy()
    chance = rng.random(bell.shape)
    infinite[chance < 0.01], infinite[chance > 0.99] = np.inf, -np.inf
    infinite[(chance > 0.4) & (chance < 0.41)] = np.nan
    infinite[:3] = np.array([[np.inf], [-np.inf], [np.nan]])
    kinds["infinite and NaN"] = infinite
    kinds["signed zeros"] = np.where(bell > 0, np.float32(0), np.float32(-0.0))
    kinds["any bits"] = rng.integers(0, 1 << 32, bell.shape, dtype=np.uint32).view(np.float32)
    return kinds


@pytest.mark.parametrize("name", TYPES)
def test_as_ggml_to_the_bit(name: str, pool: ThreadPool) -> None:
    for kind, values in rows_of_kinds().items():
        theirs = ggml.quantize(values, name, has_importance=False)
        for isa in cpu_info().isas:
            ours = quantize(pool, values.view(np.uint8), "F32", name, isa)
            np.testing.assert_array_equal(ours, theirs, f"{kind}, {isa}")


@pytest.mark.parametrize("name", TYPES)
def test_as_the_gguf_package(name: str, pool: ThreadPool) -> None:
    """It differs from ggml in the sign of zeros, and in what becomes of infinities and NaN."""
    type_ = gguf.GGMLQuantizationType[name]
    for kind, values in rows_of_kinds().items():
        if kind not in ("infinite and NaN", "signed zeros", "any bits"):
            with np.errstate(over="ignore", invalid="ignore"):
                theirs = gguf.quants.quantize(values, type_).view(np.uint8)
            np.testing.assert_array_equal(quantize(pool, values.view(np.uint8), "F32", name), theirs, kind)


@pytest.mark.parametrize("source", ["F16", "BF16"])
def test_sources_of_16_bits(source: str, pool: ThreadPool) -> None:
    """Every one of their values; all are floats, from which they come back."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    is_nan = bits & 0x7FFF > (0x7C00 if source == "F16" else 0x7F80)
    bits[is_nan] = 0
    packed = bits.view(np.uint8).reshape(16, -1)
    floats = quantize(pool, packed, source, "F32").view(np.float32)
    expected = bits.view(np.float16) if source == "F16" else (bits.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(floats.ravel(), expected.astype(np.float32))
    np.testing.assert_array_equal(quantize(pool, packed, source, source), packed)
    np.testing.assert_array_equal(
        quantize(pool, packed, source, "Q4_0"), quantize(pool, floats.view(np.uint8), "F32", "Q4_0")
    )


def test_written_into_its_place(pool: ThreadPool, tmp_path: Path) -> None:
    values = np.random.default_rng(1).standard_normal((5000, 160)).astype(np.float32)
    packed = values.view(np.uint8)
    with (tmp_path / "out").open("w+b") as file:
        write_quantized(pool, packed, "F32", "Q5_1", file.fileno(), 1000)
        written = file.read()
    assert written[:1000] == bytes(1000)
    assert written[1000:] == quantize(pool, packed, "F32", "Q5_1").tobytes()
    read_only = os.open(tmp_path / "out", os.O_RDONLY)
    with pytest.raises(OSError, match="Bad file descriptor"):
        write_quantized(pool, packed, "F32", "Q5_1", read_only, 0)
    os.close(read_only)


def test_refusals(pool: ThreadPool, tmp_path: Path) -> None:
    rows = np.zeros((2, 40 * 4), np.uint8)
    for source, name, says in (
        ("F32", "Q4_0", "rows of 40 values cannot be Q4_0, which has blocks of 32"),
        ("F32", "IQ1_S", "there is no quantizer of the type"),
        ("Q8_0", "Q4_0", "only F32, F16 and BF16 can be quantized"),
        ("F32", "Q9", "unknown type Q9"),
    ):
        with pytest.raises(NativeError, match=says):
            quantize(pool, rows, source, name)
    odd = np.zeros((2, 33), np.uint8)
    with pytest.raises(NativeError, match="no whole rows"):
        quantize(pool, odd, "F16", "F32")
    values = np.zeros((4, 32), np.float32)
    values[3, 7] = np.nan
    with (tmp_path / "out").open("wb") as file, pytest.raises(NativeError, match="infinite or not a number"):
        write_quantized(pool, values.view(np.uint8), "F32", "Q8_0", file.fileno(), 0)
