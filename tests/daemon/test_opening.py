"""Headers of directories are made once, whole, and of files that stay the same."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import pytest

import puna
from puna.backends.base import ModelLoadError
from puna.convert.errors import ConversionError
from puna.convert.job import ConvertJob, ConvertProgress
from puna.daemon.converting import Converter
from puna.daemon.opening import ModelOpener
from puna.registry import ModelName, StoreError
from puna.registry.local.linked import link
from puna.registry.local.local_directory import LocalDirectory
from puna.registry.local.local_models import LocalModels

pytestmark = pytest.mark.unit

FILES = ("config.json", "model-1.safetensors", "model-2.safetensors", "tokenizer.json")


class FakeConverter(Converter):
    """Writes the names that it was given."""

    def __init__(
        self, directory: Path, *, fails: bool = False, changes: bool = False, hangs: bool = False
    ) -> None:
        self.num_runs = self.num_open = 0
        self.hangs = hangs
        self.is_running = asyncio.Event()
        self._directory, self._fails, self._changes = directory, fails, changes

    async def convert(
        self, files: Mapping[str, int], output: int, job: ConvertJob
    ) -> AsyncGenerator[ConvertProgress, None]:
        self.num_runs += 1
        assert job.kind == "header"
        os.write(output, " ".join(files).encode())
        self.num_open += 1
        try:
            yield ConvertProgress("half", 1, 2)
            self.is_running.set()
            await (asyncio.Event().wait() if self.hangs else asyncio.sleep(0))
        finally:
            self.num_open -= 1
        if self._changes:
            (self._directory / FILES[0]).write_text("other")
        if self._fails:
            raise ConversionError("config.json: architectures is missing")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    for name in FILES:
        (directory / name).write_text(name)
    return directory


@pytest.fixture
def local(tmp_path: Path, directory: Path) -> LocalModels:
    local = LocalModels(in_place=tmp_path / "in-place")
    link(tmp_path / "in-place" / "links", "model", directory)
    return local


def found(local: LocalModels) -> LocalDirectory:
    model = local.find(ModelName.parse("local/model"))
    assert isinstance(model, LocalDirectory)
    return model


def left(local: LocalModels) -> list[str]:
    assert local.in_place is not None
    return [path.name for path in (local.in_place / "headers").iterdir()]


def num_descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_who_comes_meanwhile_waits_for_the_same_header(directory: Path, local: LocalModels):
    converter, model = FakeConverter(directory), found(local)
    opener = ModelOpener(converter, local)

    async def main() -> None:
        sources = await asyncio.gather(*(opener.open(model) for _ in range(3)))
        sources.append(await opener.open(model))
        for source in sources:
            contents = [os.pread(descriptor, 100, 0).decode() for descriptor in source.descriptors]
            assert contents == [" ".join(FILES), *FILES[1:3]]
            source.close()

    asyncio.run(main())
    assert converter.num_runs == 1
    assert left(local) == [model.header.name]


def test_headers_of_other_builds_are_not_used(directory: Path, local: LocalModels):
    converter, model = FakeConverter(directory), found(local)
    model.header.parent.mkdir()
    model.header.with_name(f"{model.digest}-{puna.__version__}.gguf").write_text("without a key")
    source = asyncio.run(ModelOpener(converter, local).open(model))
    source.close()
    assert converter.num_runs == 1


def test_the_last_one_who_stops_waiting_ends_it(directory: Path, local: LocalModels):
    converter, model = FakeConverter(directory, hangs=True), found(local)
    opener = ModelOpener(converter, local)

    async def main() -> None:
        before = num_descriptors()
        waiting = [asyncio.create_task(opener.open(model)) for _ in range(2)]
        await converter.is_running.wait()
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        assert len(left(local)) == converter.num_open == 1
        waiting[1].cancel()
        await asyncio.wait(waiting)
        assert (left(local), converter.num_open) == ([], 0)
        assert num_descriptors() == before
        converter.hangs = False
        (await opener.open(model)).close()

    asyncio.run(main())
    assert converter.num_runs == 2
    assert left(local) == [model.header.name]


@pytest.mark.parametrize(
    ("converter", "error", "message"),
    [
        ({"fails": True}, ModelLoadError, "architectures is missing"),
        ({"changes": True}, StoreError, "just been changed"),
    ],
)
def test_nothing_is_left_of_a_header_that_cannot_be(
    converter: dict[str, bool], error: type[Exception], message: str, directory: Path, local: LocalModels
):
    opener = ModelOpener(FakeConverter(directory, **converter), local)
    with pytest.raises(error, match=message):
        asyncio.run(opener.open(found(local)))
    assert left(local) == []
