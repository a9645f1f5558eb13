"""A directory of safetensors, configuration and tokenizer to GGUF."""

from __future__ import annotations

from collections.abc import Mapping

from puna.convert.errors import ConversionError
from puna.convert.job import Report


def convert_safetensors(files: Mapping[str, int], output: int, quantize: str, report: Report) -> None:  # noqa: ARG001
    """Raises ConversionError."""
    raise ConversionError("safetensors cannot be converted yet")
