"""GGUF files, whole or in parts, to one whole file, of another quantization where one is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from puna._native import NativeError, ThreadPool, write_quantized
from puna.convert.errors import ConversionError
from puna.convert.job import ConvertProgress, Report
from puna.convert.output import check_space
from puna.convert.quantization import FLOATS, ModelFacts, choose_types, quantization_named
from puna.convert.sources.files import Files
from puna.convert.sources.gguf_parts import GgufParts, read_parts
from puna.gguf import GgufError, GgufFile
from puna.gguf.file_type import FILE_TYPES, quantization_name
from puna.gguf.writer import GgufValue, NewTensor, row_bytes, uint32, write_header

_CHUNK_BYTES = 64 << 20
"""Of the source: after as many there is a report."""
_QUANTIZATION_VERSION = 2


def requantize(
    files: Mapping[str, int], output: int, quantize: str, report: Report, pool: ThreadPool
) -> None:
    """files: all parts, under any names. quantize: of QUANTIZATIONS, in any case; empty: weights stay what
    they are. Raises ConversionError, OSError.
    """
    parts = read_parts(Files(files))
    try:
        metadata, types, status = _plan(parts, quantize)
        tensors = [NewTensor(name, types[name], part.info.shape) for name, part in parts.tensors.items()]
        with open(output, "r+b", closefd=False) as file:
            layout = write_header(file, metadata, tensors)
        check_space(output, layout.num_bytes)
        with ExitStack() as stack:
            opened = {
                name: stack.enter_context(GgufFile.from_descriptor(descriptor, name))
                for name, descriptor in files.items()
            }
            for tensor, offset in zip(tensors, layout.offsets, strict=True):
                part = parts.tensors[tensor.name]
                data = opened[part.file].data(tensor.name)
                for end in _write(pool, data, part.info.type, tensor, output, offset):
                    report(ConvertProgress(status, end, layout.num_bytes))
            for source in opened.values():
                source.check_whole()
    except (GgufError, NativeError) as error:
        raise ConversionError(str(error)) from error
    report(ConvertProgress(status, layout.num_bytes, layout.num_bytes))


def _plan(parts: GgufParts, quantize: str) -> tuple[dict[str, GgufValue], dict[str, str], str]:
    """Metadata, types by tensor, and what is reported. Raises ConversionError, GgufError."""
    metadata = parts.values()
    infos = {name: part.info for name, part in parts.tensors.items()}
    if not quantize:
        return metadata, {name: info.type for name, info in infos.items()}, "merging model"
    quantization = quantization_named(quantize)
    source = quantization_name(parts.metadata, infos)
    if source not in FLOATS:
        raise ConversionError("quantization is only supported for F16, BF16 and F32 models")
    sources = [NewTensor(info.name, info.type, info.shape) for info in infos.values()]
    types = choose_types(ModelFacts.of(metadata), sources, quantization)
    metadata["general.file_type"] = uint32(FILE_TYPES[quantization])
    metadata["general.quantization_version"] = uint32(_QUANTIZATION_VERSION)
    return metadata, types, f"quantizing {source} model to {quantization}"


def _write(
    pool: ThreadPool, data: NDArray[np.uint8], source: str, tensor: NewTensor, output: int, offset: int
) -> Iterator[int]:
    """Writes a tensor some rows at a time. Yields where in the output what is written ends."""
    rows = data.reshape(-1, row_bytes(source, tensor.shape[0]))
    step = max(1, _CHUNK_BYTES // rows.shape[1])
    for begin in range(0, len(rows), step):
        chunk = rows[begin : begin + step]
        if source == tensor.type:
            _copy(chunk.reshape(-1), output, offset)
        else:
            write_quantized(pool, chunk, source, tensor.type, output, offset)
        offset += len(chunk) * tensor.row_bytes
        yield offset


def _copy(chunk: NDArray[np.uint8], output: int, offset: int) -> None:
    written = 0
    while written < len(chunk):
        written += os.pwrite(output, chunk[written:].data, offset + written)
