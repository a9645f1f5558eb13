"""Writes the projector of a published file as one that llama.cpp reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from puna.gguf.errors import GgufError
from puna.gguf.file import GgufFile
from puna.gguf.metadata import Metadata
from puna.gguf.projectors import DIALECTS, Dialect, clip_values
from puna.gguf.tensor_info import TensorInfo
from puna.gguf.translated_file import plain_values
from puna.gguf.writer import GgufValue, NewTensor, row_bytes, write_header

_KINDS = ("clip.projector_type", "clip.vision.projector_type", "clip.audio.projector_type")
_OF_IMAGES = ("v.", "mm.")
_PATCHES = "v.patch_embed.weight"
_OF_THREE = re.compile(r"(v\.blk\.\d+\.attn_)([qkv])(\.\w+)")
_MOST_GROWTH = 4
"""Blocks would become several times as large, where llama.cpp has floats."""
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
    _check(file.name, found)
    parts = [part for tensor in found for part in _parts(file, tensor, dialect)]
    if sum(part.tensor.num_bytes for part in parts) > _MOST_GROWTH * sum(
        tensor.num_bytes for tensor in found
    ):
        raise GgufError(f"{file.name}: its projector would grow more than {_MOST_GROWTH}-fold")
    zeros = [NewTensor(name, "F32", (_length(metadata, key),)) for name, key in dialect.zeros.items()]
    layout = write_header(output, values, [*(part.tensor for part in parts), *zeros])  # zeros are not written
    for part, offset in zip(parts, layout.offsets, strict=False):
        output.seek(offset)
        output.write(part.data().data)
    output.flush()
    file.check_whole()


class _Part(NamedTuple):
    """A tensor of the new file."""

    tensor: NewTensor
    data: Callable[[], NDArray[np.generic]]


def _parts(file: GgufFile, source: TensorInfo, dialect: Dialect) -> Iterator[_Part]:
    """What becomes of a tensor, or of several whose first it is."""
    name = dialect.name_of(source.name, file.metadata)
    if dialect.is_split and source.name == _PATCHES:
        yield from _frames(file, source, name)
    elif dialect.is_split and (found := _OF_THREE.fullmatch(source.name)):
        if found[2] == "q":
            yield _fused(
                file, [f"{found[1]}{letter}{found[3]}" for letter in "qkv"], f"{found[1]}qkv{found[3]}"
            )
    elif name in dialect.floats and source.type != "F32":
        tensor = NewTensor(name, "F32", source.shape)
        yield _Part(tensor, lambda: np.ascontiguousarray(file.dequantize(source.name)))
    else:
        yield _Part(NewTensor(name, source.type, source.shape), lambda: _data(file, source, name, dialect))


def _fused(file: GgufFile, names: list[str], name: str) -> _Part:
    """One behind the other: as F32, where their types differ."""
    if missing := [each for each in names if each not in file.tensors]:
        raise GgufError(f"{file.name}: tensor {missing[0]} is missing")
    sources = [file.tensors[each] for each in names]
    columns = {source.shape[:-1] for source in sources}
    if len(columns) > 1:
        raise GgufError(f"{file.name}: {', '.join(names)} differ in shape")
    types = {source.type for source in sources}
    kind = types.pop() if len(types) == 1 else "F32"
    tensor = NewTensor(name, kind, (*columns.pop(), sum(source.shape[-1] for source in sources)))

    def data() -> NDArray[np.generic]:
        if kind == sources[0].type:
            return np.concatenate([file.data(each).reshape(-1) for each in names])
        return np.concatenate([file.dequantize(each).reshape(-1) for each in names])

    return _Part(tensor, data)


def _frames(file: GgufFile, source: TensorInfo, name: str) -> Iterator[_Part]:
    """The patches of two frames: [columns, rows, 2, outputs * channels]."""
    channels = file.metadata.get(f"{file.metadata['general.architecture']}.vision.num_channels", 3)
    if len(source.shape) != 4 or source.shape[2] != 2 or channels not in (1, 3) or source.shape[3] % channels:
        raise GgufError(f"{file.name}: tensor {source.name} is not of two frames")
    columns, rows, _, filters = source.shape
    shape = (columns, rows, channels, filters // channels)
    for frame in range(2):

        def data(frame: int = frame) -> NDArray[np.generic]:
            return np.ascontiguousarray(file.dequantize(source.name).reshape(filters, 2, -1)[:, frame])

        yield _Part(NewTensor(f"{name}.{frame}" if frame else name, "F32", shape), data)


def _check(name: str, sources: Sequence[TensorInfo]) -> None:
    for tensor in sources:
        if not tensor.num_bytes:
            raise GgufError(f"{name}: tensor {tensor.name} is of an unknown type, {tensor.type}")


def _length(metadata: Metadata, key: str) -> int:
    value: Any = metadata.get(key)
    if not isinstance(value, int) or not 0 < value < 1 << 20:
        raise GgufError(f"{metadata.name}: {key} is missing, or no length")
    return value


def _data(file: GgufFile, source: TensorInfo, name: str, dialect: Dialect) -> NDArray[np.generic]:
    data = file.data(source.name)
    if dialect.halves_rotate and name.endswith((".attn_q.weight", ".attn_k.weight")):
        heads = _length(file.metadata, f"{file.metadata['general.architecture']}.vision.attention.head_count")
        rows = data.reshape(-1, row_bytes(source.type, source.shape[0]))
        if len(rows) % (2 * heads):
            raise GgufError(f"{file.name}: tensor {source.name} does not have {heads} heads")
        return np.ascontiguousarray(rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2))
    return data
