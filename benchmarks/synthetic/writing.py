"""Writes a synthetic model, tensor by tensor; no tensor is in memory as a whole."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray

from benchmarks.synthetic.blocks import random_blocks
from benchmarks.synthetic.model import SyntheticModel, Value
from benchmarks.synthetic.vocabulary import add_vocabulary
from benchmarks.weights.recipes import FILE_TYPES, Shape, type_of


def write_model(model: SyntheticModel, target: Path) -> None:
    """The same bytes every time."""
    writer = GGUFWriter(target, model.architecture)
    writer.add_name(f"Synthetic, shape of {model.title}")
    writer.add_file_type(FILE_TYPES[model.mixture])
    for key, value in model.metadata.items():
        _add(writer, f"{model.architecture}.{key}", value)
    add_vocabulary(writer, model.vocabulary, model.pre_tokenizer)
    if model.chat_template is not None:
        writer.add_chat_template(model.chat_template)
    types = {shape.name: GGMLQuantizationType[type_of(shape, model.mixture)] for shape in model.tensors}
    for shape in model.tensors:
        num_bytes = _num_blocks(shape, types[shape.name]) * _block_bytes(types[shape.name])
        writer.add_tensor_info(shape.name, shape.dims, np.dtype(np.float32), num_bytes, types[shape.name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    assert writer.fout is not None
    out = writer.fout[0]
    rng = np.random.default_rng(0)
    for shape in model.tensors:
        out.write(bytes(-out.tell() % writer.data_alignment))
        for chunk in _data(shape, types[shape.name], rng):
            out.write(chunk.tobytes())
    out.write(bytes(-out.tell() % writer.data_alignment))
    writer.close()


def _add(writer: GGUFWriter, key: str, value: Value) -> None:
    match value:
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)


def _num_blocks(shape: Shape, weight_type: GGMLQuantizationType) -> int:
    return math.prod(shape.dims) // gguf.GGML_QUANT_SIZES[weight_type][0]


def _block_bytes(weight_type: GGMLQuantizationType) -> int:
    return gguf.GGML_QUANT_SIZES[weight_type][1]


def _data(
    shape: Shape, weight_type: GGMLQuantizationType, rng: np.random.Generator
) -> Iterator[NDArray[np.generic]]:
    """Of such a size that what goes through a matrix keeps its own."""
    if weight_type == GGMLQuantizationType.F32:
        yield _floats(shape, rng)
    else:
        yield from random_blocks(weight_type, _num_blocks(shape, weight_type), shape.cols**-0.5, rng)


def _floats(shape: Shape, rng: np.random.Generator) -> NDArray[np.float32]:
    if "norm" in shape.name:
        return np.ones(shape.dims, np.float32)
    if shape.name.endswith("ssm_a"):  # how fast a state fades: some heads forget at once, some hardly ever
        return -np.geomspace(0.001, 4, shape.rows, dtype=np.float32)
    return rng.normal(0, (shape.cols or 100) ** -0.5, shape.dims).astype(np.float32)
