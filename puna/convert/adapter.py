"""LoRA adapters as PEFT writes them to GGUF."""

from __future__ import annotations

from collections.abc import Mapping

from puna._native import ThreadPool
from puna.convert.errors import ConversionError
from puna.convert.job import Report


def convert_adapter(
    files: Mapping[str, int],
    output: int,
    quantize: str,
    report: Report,
    pool: ThreadPool,  # noqa: ARG001
) -> None:
    """Raises ConversionError."""
    raise ConversionError("adapters cannot be converted yet")
