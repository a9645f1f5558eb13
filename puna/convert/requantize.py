"""GGUF files, whole or in parts, to one of another quantization."""

from __future__ import annotations

from collections.abc import Mapping

from puna._native import ThreadPool
from puna.convert.errors import ConversionError
from puna.convert.job import Report


def requantize(
    files: Mapping[str, int],  # noqa: ARG001
    output: int,  # noqa: ARG001
    quantize: str,  # noqa: ARG001
    report: Report,  # noqa: ARG001
    pool: ThreadPool,  # noqa: ARG001
) -> None:
    """Raises ConversionError."""
    raise ConversionError("GGUF files cannot be converted yet")
