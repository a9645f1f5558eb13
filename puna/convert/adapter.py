"""LoRA adapters as PEFT writes them to GGUF, as llama.cpp's convert_lora_to_gguf.py does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from puna._native import ThreadPool
from puna.convert.errors import ConversionError
from puna.convert.job import BASE_MODEL, Report
from puna.convert.models.config import Config
from puna.convert.models.families import family_of_architecture
from puna.convert.models.names import place_of
from puna.convert.output import write_model
from puna.convert.plan import pair_rows
from puna.convert.planned_tensor import PlannedTensor
from puna.convert.quantization import FLOATS
from puna.convert.sources.files import Files
from puna.convert.sources.header import SourceTensor, read_header
from puna.convert.sources.values import all_rows, can_read
from puna.gguf import GgufError, Metadata, read_metadata
from puna.gguf.file_type import FILE_TYPES
from puna.gguf.writer import float32, string, uint32

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_PARTS = {".lora_A.weight": "lora_a", ".lora_B.weight": "lora_b"}
_UNSUPPORTED = ("use_dora", "alpha_pattern", "modules_to_save", "fan_in_fan_out")
"""Settings that mean something else than a product of two matrices, all scaled alike."""


def convert_adapter(
    files: Mapping[str, int], output: int, quantize: str, report: Report, pool: ThreadPool
) -> None:
    """files: of the adapter's directory, and BASE_MODEL, the GGUF file of the model that it is for: its
    architecture decides how rows are ordered. quantize: F32 (or empty), F16 or BF16.

    Raises ConversionError, OSError.
    """
    type_name = quantize or "F32"
    if type_name not in FLOATS:
        raise ConversionError(f"adapters cannot be of type {type_name[:40]!r}: F32, F16 and BF16 are known")
    given = Files(files)
    config = given.object(_CONFIG)
    for setting in _UNSUPPORTED:
        if config.get(setting):
            raise ConversionError(f"{_CONFIG}: {setting} is not supported")
    base = _base(given)
    architecture = _text(base, "general.architecture")
    planned = _plan(architecture, base, read_header(given, _WEIGHTS))
    metadata = {
        "general.architecture": string(architecture),
        "general.type": string("adapter"),
        "adapter.type": string("lora"),
        "adapter.lora.alpha": float32(_alpha(config)),
        "general.file_type": uint32(FILE_TYPES[type_name]),
        "general.quantization_version": uint32(2),
    }
    write_model(given, output, metadata, planned, {t.name: type_name for t in planned}, report, pool)


def _base(files: Files) -> Metadata:
    if BASE_MODEL not in files:
        raise ConversionError("an adapter's model must be known")
    try:
        return read_metadata(files.descriptors[BASE_MODEL], "the adapter's model")
    except GgufError as error:
        raise ConversionError(str(error)) from error


def _text(metadata: Metadata, key: str) -> str:
    value = metadata.get(key)
    if not isinstance(value, str):
        raise ConversionError(f"{metadata.name}: {key} is missing")
    return value


def _alpha(settings: Mapping[str, Any]) -> float:
    """Divided by the rank it is the scale; with rsLoRA that is alpha / sqrt(rank)."""
    config = Config(settings)
    alpha = config.number("lora_alpha")
    return alpha * math.sqrt(config.integer("r")) if config.flag("use_rslora") else alpha


def _plan(architecture: str, base: Metadata, tensors: list[SourceTensor]) -> list[PlannedTensor]:
    family = family_of_architecture(architecture)
    pairs: dict[str, dict[str, SourceTensor]] = {}
    for tensor in tensors:
        ending = next((ending for ending in _PARTS if tensor.name.endswith(ending)), None)
        if ending is None or not can_read(tensor.dtype) or len(tensor.shape) != 2:
            raise ConversionError(f"{_WEIGHTS}: tensor {tensor.name[:100]!r} is no part of a LoRA pair")
        place = place_of(tensor.name.removeprefix(_PREFIX).removesuffix(ending) + ".weight", family)
        if place is None or place.expert is not None:
            raise ConversionError(f"{_WEIGHTS}: tensor {tensor.name[:100]!r} is not known of {architecture}")
        pairs.setdefault(place.name, {})[_PARTS[ending]] = tensor
    if not pairs:
        raise ConversionError(f"{_WEIGHTS} has no tensors")
    planned = []
    for name, pair in pairs.items():
        _check_pair(name, pair, base)
        for part, tensor in pair.items():
            heads = pair_rows(name, tensor, family, _head_dim(base, architecture)) if part == "lora_b" else 0
            planned.append(
                PlannedTensor(
                    name=f"{name}.{part}",
                    shape=tensor.shape,
                    dtype=tensor.dtype,
                    rows=(all_rows(tensor),),
                    pair_rows=heads,
                )
            )
    return planned


def _check_pair(name: str, pair: Mapping[str, SourceTensor], base: Metadata) -> None:
    """lora_a is [rank, columns], lora_b [rows, rank]."""
    if name not in base.tensors:
        raise ConversionError(f"{_WEIGHTS} changes {name}, which the adapter's model does not have")
    if len(pair) < 2:
        raise ConversionError(f"{_WEIGHTS} has only one matrix for {name}")
    (rank, columns), (rows, other_rank) = pair["lora_a"].shape, pair["lora_b"].shape
    if rank != other_rank or not rank or base.tensors[name].shape != (columns, rows):
        raise ConversionError(f"{_WEIGHTS}: the matrices for {name} do not fit each other or the model")


def _head_dim(base: Metadata, architecture: str) -> int:
    length, width, heads = (
        base.get(f"{architecture}.{key}")
        for key in ("attention.key_length", "embedding_length", "attention.head_count")
    )
    if isinstance(length, int):
        return length
    if isinstance(width, int) and isinstance(heads, int) and heads > 0:
        return width // heads
    raise ConversionError(f"{base.name} does not say how large its heads are")
