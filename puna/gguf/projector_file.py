"""Writes the projector of a published file as one that llama.cpp reads."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from puna.gguf.errors import GgufError
from puna.gguf.file import GgufFile
from puna.gguf.metadata import Metadata, TensorInfo
from puna.gguf.projectors import DIALECTS, Dialect, clip_values
from puna.gguf.translated_file import plain_values
from puna.gguf.writer import GgufValue, NewTensor, row_bytes, write_header

_KINDS = ("clip.projector_type", "clip.vision.projector_type", "clip.audio.projector_type")
_OF_IMAGES = ("v.", "mm.")
_FIRST = Dialect(kind="mlp", floats=())
"""Of the first LLaVA models, whose projectors do not say what they are."""


def must_be_written(metadata: Metadata) -> bool:
    """Whether the file of a projector is not such as llama.cpp reads; metadata: its own."""
    return not any(key in metadata for key in _KINDS)


def write_projector(file: GgufFile, output: BinaryIO) -> None:
    """file: of a model or a projector, opened as it was published. Raises GgufError, OSError."""
    metadata = file.metadata
    architecture = metadata.get("general.architecture")
    if architecture == "clip":
        dialect, found = _FIRST, list(metadata.tensors.values())
        values = plain_values(metadata) | {dialect.kind_key: GgufValue("string", dialect.kind)}
    else:
        found = [tensor for tensor in metadata.tensors.values() if tensor.name.startswith(_OF_IMAGES)]
        if (known := DIALECTS.get(str(architecture))) is None or not found:
            raise GgufError(f"{file.name}: it has no projector that can be used")
        dialect = known
        values = clip_values(metadata, dialect)
    sources = {dialect.name_of(tensor.name): tensor for tensor in found}
    tensors = [
        NewTensor(name, "F32" if name in dialect.floats else source.type, source.shape)
        for name, source in sources.items()
    ]
    zeros = [NewTensor(name, "F32", (_length(metadata, key),)) for name, key in dialect.zeros.items()]
    _check(file.name, sources)
    layout = write_header(output, values, [*tensors, *zeros])  # what is not written is zero
    for tensor, offset in zip(tensors, layout.offsets, strict=False):
        output.seek(offset)
        output.write(_data(file, sources[tensor.name], tensor, dialect, metadata).data)
    output.flush()
    file.check_whole()


def _check(name: str, sources: dict[str, TensorInfo]) -> None:
    for tensor in sources.values():
        if not tensor.num_bytes:
            raise GgufError(f"{name}: tensor {tensor.name} is of an unknown type, {tensor.type}")


def _length(metadata: Metadata, key: str) -> int:
    value: Any = metadata.get(key)
    if not isinstance(value, int) or not 0 < value < 1 << 20:
        raise GgufError(f"{metadata.name}: {key} is missing, or no length")
    return value


def _data(
    file: GgufFile, source: TensorInfo, tensor: NewTensor, dialect: Dialect, metadata: Metadata
) -> NDArray[np.generic]:
    if tensor.type != source.type:
        return np.ascontiguousarray(file.dequantize(source.name))
    data = file.data(source.name)
    if dialect.halves_rotate and tensor.name.endswith((".attn_q.weight", ".attn_k.weight")):
        heads = _length(metadata, f"{metadata['general.architecture']}.vision.attention.head_count")
        rows = data.reshape(-1, row_bytes(source.type, source.shape[0]))
        if len(rows) % (2 * heads):
            raise GgufError(f"{file.name}: tensor {source.name} does not have {heads} heads")
        return np.ascontiguousarray(rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2))
    return data
