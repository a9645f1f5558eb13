"""ggml's own conversions, which know more types than the gguf package: from the library in xllamacpp."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import xllamacpp.xllamacpp
from numpy.typing import NDArray

# ggml.h; the gguf package does not know Q2_0.
TYPES = {
    "F16": 1, "BF16": 30,
    "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13,
    "Q6_K": 14, "IQ2_XXS": 16, "IQ2_XS": 17, "IQ3_XXS": 18, "IQ1_S": 19, "IQ4_NL": 20, "IQ3_S": 21,
    "IQ2_S": 22, "IQ4_XS": 23, "IQ1_M": 29, "TQ1_0": 34, "TQ2_0": 35, "MXFP4": 39, "NVFP4": 40, "Q1_0": 41,
    "Q2_0": 42,
}  # fmt: skip


class _TypeTraits(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("block_elements", ctypes.c_int64),
        ("interleave", ctypes.c_int64),
        ("block_bytes", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
        ("from_float", ctypes.c_void_p),
    )


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
    library.ggml_get_type_traits.restype = ctypes.POINTER(_TypeTraits)
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    return library


def _traits(name: str) -> _TypeTraits:
    traits: _TypeTraits = _library().ggml_get_type_traits(TYPES[name]).contents
    assert traits.name.decode().upper() == name
    return traits


def block_size(name: str) -> tuple[int, int]:
    """(values, bytes) of a block."""
    traits = _traits(name)
    return traits.block_elements, traits.block_bytes


def dequantize(packed: NDArray[np.uint8], name: str) -> NDArray[np.float32]:
    """[rows, bytes] to [rows, values]."""
    elements, num_bytes = block_size(name)
    packed = np.ascontiguousarray(packed)
    out = np.empty((packed.shape[0], packed.shape[1] // num_bytes * elements), np.float32)
    _traits(name).to_float(packed.ctypes.data, out.ctypes.data, out.size)
    return out


def quantize(values: NDArray[np.float32], name: str, *, has_importance: bool = True) -> NDArray[np.uint8]:
    """[rows, values] to [rows, bytes], all values being equally important, or as important as ggml thinks."""
    elements, num_bytes = block_size(name)
    rows, cols = values.shape
    values = np.ascontiguousarray(values)
    importance = np.ones(cols, np.float32) if has_importance else None
    out = np.empty((rows, cols // elements * num_bytes), np.uint8)
    written = _library().ggml_quantize_chunk(
        TYPES[name],
        ctypes.c_void_p(values.ctypes.data),
        ctypes.c_void_p(out.ctypes.data),
        ctypes.c_int64(0),
        ctypes.c_int64(rows),
        ctypes.c_int64(cols),
        None if importance is None else ctypes.c_void_p(importance.ctypes.data),
    )
    assert written == out.nbytes
    return out
