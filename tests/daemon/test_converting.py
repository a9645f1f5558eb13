"""A conversion is a process of its own: caged, limited, and gone when nobody waits for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import pytest

from puna.convert.errors import ConversionError
from puna.daemon.converting import Converter, ConvertJob, ConvertProgress

pytestmark = pytest.mark.e2e


async def convert(files: Mapping[str, Path], output: Path, job: ConvertJob) -> list[ConvertProgress]:
    opened = {name: os.open(path, os.O_RDONLY) for name, path in files.items()}
    try:
        with output.open("w+b") as file:
            async with aclosing(Converter().convert(opened, file.fileno(), job)) as steps:
                return [progress async for progress in steps]
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path):
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "model.safetensors").write_bytes(bytes(100))
    files = {path.name: path for path in tmp_path.iterdir()}
    with pytest.raises(ConversionError, match=r"config\.json"):
        asyncio.run(convert(files, tmp_path / "out", ConvertJob("safetensors")))
