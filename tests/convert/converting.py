"""Conversions in this process, for tests of what they make."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from puna._native import ThreadPool
from puna.convert.job import ConvertProgress, Report

Conversion = Callable[[Mapping[str, int], int, str, Report, ThreadPool], None]


def convert(
    conversion: Conversion, files: Mapping[str, Path], output: Path, quantize: str = ""
) -> list[ConvertProgress]:
    """What was reported."""
    told: list[ConvertProgress] = []
    with ExitStack() as opened:
        descriptors = {}
        for name, path in files.items():
            descriptors[name] = os.open(path, os.O_RDONLY)
            opened.callback(os.close, descriptors[name])
        file = opened.enter_context(output.open("w+b"))
        pool = opened.enter_context(closing(ThreadPool(2)))
        conversion(descriptors, file.fileno(), quantize, told.append, pool)
    return told


def files_in(directory: Path) -> dict[str, Path]:
    return {str(path.relative_to(directory)): path for path in directory.rglob("*") if path.is_file()}
