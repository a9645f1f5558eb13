"""all-MiniLM-L6-v2, a real encoder, in several types."""

from __future__ import annotations

from pathlib import Path

from benchmarks.weights.files import BenchFile, made_file
from puna.convert.safetensors import convert_safetensors
from tests.conftest import minilm_directory
from tests.convert.converting import convert, files_in


def minilm_file(weight_type: str) -> BenchFile:
    """In F32, F16 or Q8_0; converted from what its package holds."""

    def write(path: Path) -> None:
        convert(convert_safetensors, files_in(minilm_directory()), path, weight_type)

    return made_file(f"minilm:{weight_type.lower()}", f"MiniLM-L6 {weight_type}", write)
