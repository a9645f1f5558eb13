"""GGUF files whose tensors lie in several files, as llama.cpp's gguf-split writes them.

The first part has all metadata; each has `split.no`, `split.count` and `split.tensors.count`.
"""

from __future__ import annotations

from typing import NamedTuple

from puna.convert.errors import ConversionError
from puna.convert.sources.files import Files
from puna.gguf import GgufError, Metadata, TensorInfo, read_metadata
from puna.gguf.writer import GgufValue

_NUMBER, _COUNT, _NUM_TENSORS = "split.no", "split.count", "split.tensors.count"
_ALIGNMENT = "general.alignment"
"""Files that are written have the usual one."""


class PartTensor(NamedTuple):
    file: str
    info: TensorInfo


class GgufParts(NamedTuple):
    """All parts of a GGUF file, or one that is whole."""

    metadata: Metadata
    """Of the first part."""
    tensors: dict[str, PartTensor]

    def values(self) -> dict[str, GgufValue]:
        """All metadata, to be written to a whole file. Raises ConversionError, GgufError."""
        values = {}
        for key in self.metadata:
            info = self.metadata.info(key)
            if info.item_type == "array":
                raise ConversionError(f"{self.metadata.name}: {key} is an array of arrays")
            if key not in (_NUMBER, _COUNT, _NUM_TENSORS, _ALIGNMENT):
                values[key] = GgufValue(info.type, self.metadata[key], info.item_type)
        return values


def read_parts(files: Files, *, as_stored: bool = False) -> GgufParts:
    """Of all files, whatever their names. as_stored: see Metadata. Raises ConversionError if parts are
    missing or do not belong together.
    """
    try:
        opened = [
            (name, read_metadata(number, name, as_stored=as_stored))
            for name, number in files.descriptors.items()
        ]
    except GgufError as error:
        raise ConversionError(str(error)) from error
    if not opened:
        raise ConversionError("there are no GGUF files")
    counts = {_integer(metadata, _COUNT, 1) for _, metadata in opened}
    if len(counts) > 1 or max(counts) not in (len(opened), 0 if len(opened) == 1 else -1):
        raise ConversionError(f"there are {len(opened)} files of a GGUF model in {max(counts)} parts")
    ordered = sorted(opened, key=lambda part: _integer(part[1], _NUMBER, 0))
    tensors: dict[str, PartTensor] = {}
    for number, (name, metadata) in enumerate(ordered):
        if _integer(metadata, _NUMBER, 0) != number:
            raise ConversionError(
                f"part {number + 1} of {len(ordered)} is missing, {name[:100]!r} comes twice"
            )
        for tensor in metadata.tensors.values():
            if not tensor.num_bytes:
                raise ConversionError(f"{name[:100]!r}: tensor {tensor.name} is of {tensor.type}, not known")
            if tensor.name in tensors:
                raise ConversionError(f"tensor {tensor.name} is in {name[:100]!r} and in another part")
            tensors[tensor.name] = PartTensor(name, tensor)
    first = ordered[0][1]
    if len(tensors) != _integer(first, _NUM_TENSORS, len(tensors)):
        raise ConversionError(f"the parts have {len(tensors)} tensors, not as many as the first one says")
    return GgufParts(first, tensors)


def _integer(metadata: Metadata, key: str, default: int) -> int:
    value = metadata.get(key, default)
    if not isinstance(value, int):
        raise ConversionError(f"{metadata.name}: {key} is no whole number")
    return value
