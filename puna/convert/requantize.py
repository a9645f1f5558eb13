"""GGUF files, whole or in parts, to one whole file."""

from __future__ import annotations

import os
from collections.abc import Mapping

from puna._native import ThreadPool
from puna.convert.errors import ConversionError
from puna.convert.job import ConvertProgress, Report
from puna.convert.output import check_space
from puna.convert.sources.files import Files
from puna.convert.sources.gguf_parts import PartTensor, read_parts
from puna.gguf import GgufError
from puna.gguf.writer import NewTensor, write_header

_CHUNK_BYTES = 32 << 20
_STATUS = "merging model"


def requantize(
    files: Mapping[str, int],
    output: int,
    quantize: str,
    report: Report,
    pool: ThreadPool,  # noqa: ARG001
) -> None:
    """files: all parts, under any names. Raises ConversionError, OSError."""
    if quantize:
        raise ConversionError("GGUF files cannot be quantized yet")
    given = Files(files)
    parts = read_parts(given)
    try:
        metadata = parts.values()
    except GgufError as error:
        raise ConversionError(str(error)) from error
    tensors = [NewTensor(name, part.info.type, part.info.shape) for name, part in parts.tensors.items()]
    with open(output, "r+b", closefd=False) as file:
        layout = write_header(file, metadata, tensors)
    check_space(output, layout.num_bytes)
    for part, offset in zip(parts.tensors.values(), layout.offsets, strict=True):
        _copy(given, part, output, offset)
        report(ConvertProgress(_STATUS, offset + part.info.num_bytes, layout.num_bytes))
    report(ConvertProgress(_STATUS, layout.num_bytes, layout.num_bytes))


def _copy(files: Files, part: PartTensor, output: int, offset: int) -> None:
    for done in range(0, part.info.num_bytes, _CHUNK_BYTES):
        count = min(_CHUNK_BYTES, part.info.num_bytes - done)
        chunk = files.bytes_at(part.file, part.info.offset + done, count).data
        written = 0
        while written < count:
            written += os.pwrite(output, chunk[written:], offset + done + written)
