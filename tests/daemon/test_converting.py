"""A conversion is a process of its own: caged, limited, and gone when nobody waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from puna.convert.errors import ConversionError
from puna.daemon.converting import Converter, ConvertJob, ConvertProgress
from puna.gguf import GgufFile
from tests.convert.converting import files_in
from tests.convert.directories import DIRECTORIES, random_weights, write_directory

pytestmark = pytest.mark.e2e


@contextmanager
def opened(files: Mapping[str, Path]) -> Iterator[dict[str, int]]:
    descriptors = {name: os.open(path, os.O_RDONLY) for name, path in files.items()}
    try:
        yield descriptors
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


async def convert(files: Mapping[str, Path], output: Path, job: ConvertJob) -> list[ConvertProgress]:
    with opened(files) as descriptors, output.open("w+b") as file:
        async with aclosing(Converter().convert(descriptors, file.fileno(), job)) as steps:
            return [progress async for progress in steps]


def converting_processes() -> set[int]:
    listed = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "pid=,args="], capture_output=True, text=True
    )
    return {int(line.split()[0]) for line in listed.stdout.splitlines() if "puna.worker.convert" in line}


def kill_when_there() -> None:
    while not (running := converting_processes()):
        time.sleep(0.01)
    os.kill(*running, signal.SIGKILL)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = DIRECTORIES["qwen2"]
    return write_directory(tmp_path_factory.mktemp("model"), tiny, random_weights(tiny), num_parts=70)


def test_more_files_than_one_message_takes_become_a_model(directory: Path, tmp_path: Path):
    output = tmp_path / "out.gguf"
    told = asyncio.run(convert(files_in(directory), output, ConvertJob("safetensors")))
    assert told[-1].completed == told[-1].total == output.stat().st_size
    with GgufFile(output) as file:
        assert file.metadata["general.architecture"] == "qwen2"
    assert converting_processes() == set()


def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConversionError, match=r"config\.json"):
        asyncio.run(convert(files_in(tmp_path), tmp_path / "out", ConvertJob("safetensors")))


def test_who_does_not_wait_any_more_ends_the_process(directory: Path, tmp_path: Path):
    async def main() -> None:
        with opened(files_in(directory)) as files, (tmp_path / "out").open("w+b") as file:
            async with aclosing(
                Converter().convert(files, file.fileno(), ConvertJob("safetensors"))
            ) as steps:
                await anext(steps)
                assert len(converting_processes()) == 1
        assert converting_processes() == set()

    asyncio.run(main())


def test_a_process_that_dies_is_an_error(directory: Path, tmp_path: Path):
    async def main() -> None:
        with opened(files_in(directory)) as files, (tmp_path / "out").open("w+b") as file:
            converting = aclosing(Converter().convert(files, file.fileno(), ConvertJob("safetensors")))
            async with converting as steps:
                first = asyncio.ensure_future(anext(steps))
                await asyncio.to_thread(kill_when_there)
                await first

    with pytest.raises(ConversionError, match="Killed"):
        asyncio.run(main())
