"""The tensors of a model that is stored in one safetensors file or in several."""

from __future__ import annotations

import msgspec

from puna.convert.errors import ConversionError
from puna.convert.sources.files import Files
from puna.convert.sources.header import SourceTensor, read_header

MAX_TENSORS = 1 << 18
_INDEX = "model.safetensors.index.json"


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def read_tensors(files: Files) -> dict[str, SourceTensor]:
    """By name, in the order of the files. Raises ConversionError."""
    index = files.json(_INDEX, _Index).weight_map if _INDEX in files else None
    names = sorted(set(index.values())) if index is not None else _files_of_model(files)
    found: dict[str, SourceTensor] = {}
    for name in names:
        if name not in files:
            raise ConversionError(f"{name[:100]!r}, which {_INDEX} names, is missing")
        for tensor in read_header(files, name):
            if index is not None and index.get(tensor.name) != name:
                raise ConversionError(f"{name}: tensor {tensor.name[:100]!r} is not where {_INDEX} says")
            if tensor.name in found:
                raise ConversionError(f"{name}: tensor {tensor.name[:100]!r} is in another file, too")
            found[tensor.name] = tensor
        if len(found) > MAX_TENSORS:
            raise ConversionError(f"more than {MAX_TENSORS} tensors")
    if index is not None and (missing := index.keys() - found.keys()):
        raise ConversionError(f"tensor {min(missing)[:100]!r} is missing")
    if not found:
        raise ConversionError("there are no safetensors files with weights")
    return found


def _files_of_model(files: Files) -> list[str]:
    """Some directories have the same weights once more, in Mistral's own form (consolidated)."""
    return sorted(
        name for name in files.descriptors if name.startswith("model") and name.endswith(".safetensors")
    )
