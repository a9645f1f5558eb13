"""LoRA adapters of random matrices for the files of tests/tiny."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from puna.gguf import GgufFile
from puna.graph.ops import Linear
from puna.models import trace_model

ALPHA = 24.0
_SIZE = 0.25  # of what an adapter adds, beside what its matrix gives


def linear_tensors(model: Path) -> list[str]:
    """Matrices of a model that adapters may change, embeddings apart."""
    with GgufFile(model) as file:
        nodes = trace_model(file.metadata, file.tensors, file.dequantize).graph.nodes
    names = {node.op.weight for node in nodes if isinstance(node.op, Linear)}
    return sorted(names - {"token_embd.weight"})


def _chosen(model: Path, tensors: Sequence[str] | None) -> Sequence[str]:
    return linear_tensors(model) if tensors is None else tensors


def write_adapter(
    path: Path,
    model: Path,
    tensors: Sequence[str] | None = None,
    *,
    rank: int = 5,
    weight_type: str = "F32",
    seed: int = 0,
    metadata: dict[str, Any] | None = None,
    others: Mapping[str, tuple[int, ...]] | None = None,
) -> Path:
    """tensors: of the model, which get random matrices; None: linear_tensors(). others: further tensors, with
    their shapes in numpy's order. metadata: in place of what an adapter has; None removes a key.
    """
    rng = np.random.default_rng(seed)
    with GgufFile(model) as file:
        architecture = str(file.metadata["general.architecture"])
        shapes = {name: file.tensors[name].shape for name in _chosen(model, tensors)}
    known = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": ALPHA} | (
        metadata or {}
    )
    writer = gguf.GGUFWriter(path, str(known.pop("general.architecture", architecture)))
    for key, value in known.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif value is not None:
            writer.add_array(key, value)
    quantization = gguf.GGMLQuantizationType[weight_type]
    for name, shape in shapes.items():
        is_embedding = name == "token_embd.weight"
        cols, rows = (*shape, 1)[:2]  # a vector is a matrix of one row
        # In numpy's order: rows, columns.
        a_shape, b_shape = ((rows, rank), (cols, rank)) if is_embedding else ((rank, cols), (rows, rank))
        for suffix, part in (("lora_a", a_shape), ("lora_b", b_shape)):
            values = rng.standard_normal(part).astype(np.float32)
            size = _SIZE * rank / ALPHA / rank**0.5 if suffix == "lora_b" else 1 / part[1] ** 0.5
            packed = gguf.quants.quantize(values * np.float32(size), quantization)
            writer.add_tensor(f"{name}.{suffix}", packed, raw_dtype=quantization)
    for name, other in (others or {}).items():
        writer.add_tensor(name, np.zeros(other, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
