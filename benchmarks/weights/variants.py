"""SmolLM2-135M in other quantizations: its own weights, dequantized and quantized anew."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from numpy.typing import NDArray

from benchmarks.weights.k_quants import quantize_q4_k, quantize_q6_k
from benchmarks.weights.recipes import FILE_TYPES, Shape, type_of
from puna.gguf import GgufFile

_K_QUANTS = {"Q4_K": quantize_q4_k, "Q6_K": quantize_q6_k}


def write_variant(source: Path, target: Path, mixture: str) -> None:
    """The model of `source` with its matrices in `mixture` (a key of FILE_TYPES)."""
    with GgufFile(source) as file:
        writer = GGUFWriter(target, str(file.metadata["general.architecture"]))
        copy_metadata(gguf.GGUFReader(source), writer)
        writer.add_file_type(FILE_TYPES[mixture])
        for name, tensor in file.tensors.items():
            values = file.dequantize(name)
            if len(tensor.shape) == 1:
                writer.add_tensor(name, values.reshape(-1))
                continue
            weight_type = type_of(_shape(name, values, file), mixture)
            writer.add_tensor(
                name, quantize(values, weight_type), raw_dtype=GGMLQuantizationType[weight_type]
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def quantize(values: NDArray[np.float32], weight_type: str) -> NDArray[np.uint8]:
    """values [rows, cols] in a GGUF type: [rows, bytes of a row]."""
    if weight_type in _K_QUANTS:
        return _K_QUANTS[weight_type](values)
    packed: NDArray[np.uint8] = gguf.quants.quantize(values, GGMLQuantizationType[weight_type])
    return packed


def _shape(name: str, values: NDArray[np.float32], file: GgufFile) -> Shape:
    layer = int(name.split(".")[1]) if name.startswith("blk.") else -1
    architecture = file.metadata["general.architecture"]
    output = "output.weight" if "output.weight" in file.tensors else "token_embd.weight"
    return Shape(
        name=name,
        rows=values.shape[0],
        cols=values.shape[1],
        layer=layer,
        num_layers=int(file.metadata[f"{architecture}.block_count"]),
        is_output=name == output,
    )


def copy_metadata(reader: gguf.GGUFReader, writer: GGUFWriter, *, prefix: str = "") -> None:
    """All keys that begin with `prefix`, but not what depends on the tensors."""
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        if not key.startswith(prefix):
            continue
        sub_type = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), field.types[0], sub_type)
