"""Everything that a model's file says, as JSON, written piece by piece: vocabularies are long."""

from __future__ import annotations

import errno
import math
from typing import Any, BinaryIO

import msgspec
import numpy as np

from puna.gguf import GgufError, Metadata
from puna.worker.text.reading import TEMPLATE_KEY

_HIDDEN_KEYS = ("general.name", TEMPLATE_KEY, "general.parameter_count")  # shown elsewhere, or by the name


class TensorEntry(msgspec.Struct):
    """A tensor; shape as GGUF has it, fastest first."""

    name: str
    type: str
    shape: tuple[int, ...]


def write_description(
    metadata: Metadata,
    file: BinaryIO,
    *,
    verbose: bool,
    with_template: bool,
    basename: str,
    is_projector: bool,
) -> None:
    """Members of a JSON object: template (if it is wanted, and there is one), model_info, tensors; of a
    projector only projector_info.

    verbose: otherwise arrays that are not empty are null.
    basename: in place of the file's "general.basename", if it is not empty. Raises GgufError, also if it
    becomes too long.
    """
    try:
        if with_template and (template := metadata.get(TEMPLATE_KEY)) is not None:
            file.write(b'"template":' + _encoded(template) + b",")
        name = b"projector_info" if is_projector else b"model_info"
        file.write(b'"' + name + b'":{"general.parameter_count":')
        file.write(_encoded(sum(math.prod(tensor.shape) for tensor in metadata.tensors.values())))
        if basename:
            file.write(b',"general.basename":' + _encoded(basename))
        for key in metadata:
            if key not in _HIDDEN_KEYS and not (basename and key == "general.basename"):
                file.write(b"," + _encoded(key) + b":")
                _write_value(metadata, key, file, verbose=verbose)
        file.write(b"}")
        if not is_projector:
            _write_tensors(metadata, file)
        file.flush()
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise GgufError(f"{metadata.name}: the description is too long") from error
        raise


def _write_tensors(metadata: Metadata, file: BinaryIO) -> None:
    file.write(b',"tensors":[')
    for number, tensor in enumerate(metadata.tensors.values()):
        file.write(b"," if number else b"")
        file.write(_encoded(TensorEntry(_clean(tensor.name), tensor.type, tensor.shape)))
    file.write(b"]")


def _write_value(metadata: Metadata, key: str, file: BinaryIO, *, verbose: bool) -> None:
    info = metadata.info(key)
    if info.type != "array":
        file.write(_encoded(metadata[key]))
    elif info.num_items and not verbose:
        file.write(b"null")
    else:
        separator = b"["
        for chunk in metadata.chunks(key):
            file.write(separator + _encoded(chunk)[1:-1])
            separator = b","
        file.write(b"]" if info.num_items else b"[]")


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(_clean(value))


def _clean(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, str):  # bytes that are not UTF-8 come as surrogates, which JSON cannot have
        return value.encode(errors="surrogateescape").decode(errors="replace")
    return value
