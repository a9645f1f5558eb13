"""Opens models' files, so that no descriptor is lost when the request is cancelled."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from puna.backends.base import ModelLoadError, ModelSource
from puna.convert.errors import ConversionError
from puna.convert.job import ConvertJob
from puna.daemon.converting import Converter
from puna.registry import MissingBlob, ModelEntry
from puna.registry.errors import StoreError
from puna.registry.in_thread import in_thread
from puna.registry.local.local_directory import HeadedModel
from puna.registry.local.local_models import LocalModels
from puna.registry.store.files.reported import reported


@dataclass(eq=False)
class _Making:
    """A header that is being made."""

    task: asyncio.Task[None]
    num_waiting: int = 0


class ModelOpener:
    """Of models in several files it makes the headers, once for all who wait for one; the last one who
    stops waiting ends it.
    """

    def __init__(self, converter: Converter, local: LocalModels) -> None:
        self._converter = converter
        self._local = local
        self._making: dict[Path, _Making] = {}

    async def open(self, model: ModelEntry, *, sees: bool = False) -> ModelSource:
        """For the caller to close. sees: with its projector's file; else with what drafts for it, if that is
        there. Raises MissingBlob, StoreError, ModelLoadError.
        """
        if isinstance(model, HeadedModel):
            return await self._open_headed(model)
        source = await _opened(model, model.open)
        if not sees:
            return await _with_drafter(model, source)
        try:
            projector = await _opened(model, model.open_projector)
        except BaseException:
            source.close()
            raise
        return replace(source, projector=projector.descriptors)

    @asynccontextmanager
    async def opened(self, model: ModelEntry) -> AsyncIterator[ModelSource]:
        """The same, closed at the end."""
        source = await self.open(model)
        try:
            yield source
        finally:
            source.close()

    async def close(self) -> None:
        tasks = [making.task for making in self._making.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _open_headed(self, model: HeadedModel) -> ModelSource:
        try:
            descriptors = await in_thread(lambda _: model.open_weights(), _close_all)
        except FileNotFoundError:
            await self._header(model)
            try:
                descriptors = await in_thread(lambda _: model.open_weights(), _close_all)
            except FileNotFoundError as error:  # somebody has just cleared it away
                raise StoreError(f"the header of {model.name.short} is gone") from error
        return ModelSource(model.name.short, descriptors)

    async def _header(self, model: HeadedModel) -> None:
        """Until it is there."""
        if (making := self._making.get(model.header)) is None:
            making = self._making[model.header] = _Making(asyncio.create_task(self._make_header(model)))
        making.num_waiting += 1
        try:
            await asyncio.shield(making.task)
        finally:
            making.num_waiting -= 1
            if not making.num_waiting:
                if self._making.get(model.header) is making:
                    del self._making[model.header]  # who asks now begins anew
                making.task.cancel()
                await asyncio.wait({making.task})

    async def _make_header(self, model: HeadedModel) -> None:
        files = await in_thread(lambda _: model.open_files(), lambda files: _close_all(files.values()))
        try:
            temporary, output = await in_thread(lambda _: _new_file(model.header.parent), _discard)
            try:
                async with aclosing(self._converter.convert(files, output, ConvertJob("header"))) as steps:
                    async for _ in steps:
                        pass
                model.check_same(files)
                await in_thread(lambda _: self._put(temporary, output, model.header))
            except ConversionError as error:
                raise ModelLoadError(f"{model.name.short}: {error}") from error
            finally:
                _discard((temporary, output))
        finally:
            _close_all(files.values())

    def _put(self, temporary: Path, output: int, header: Path) -> None:
        with reported("cannot write a header"):
            os.fsync(output)  # a header of that name is taken to be whole
            temporary.replace(header)
            self._local.remove_unused_headers()


async def open_adapter(model: ModelEntry) -> ModelSource:
    """The adapter of a model that has one, for the caller to close. Raises MissingBlob, StoreError."""
    return await _opened(model, model.open_adapter)


async def open_projector(model: ModelEntry) -> ModelSource:
    """The same, of the file that its projector is in."""
    return await _opened(model, model.open_projector)


async def _with_drafter(model: ModelEntry, source: ModelSource) -> ModelSource:
    """Models go without one whose file is gone."""
    if model.drafter_path is None:
        return source
    try:
        drafter = await _opened(model, model.open_drafter)
    except (MissingBlob, StoreError):
        return source
    except BaseException:
        source.close()
        raise
    return replace(source, drafter=drafter.descriptors)


async def _opened(model: ModelEntry, open_file: Callable[[], int]) -> ModelSource:
    descriptor = await in_thread(lambda _: open_file(), os.close)
    return ModelSource(model.name.short, (descriptor,))


def _discard(file: tuple[Path, int]) -> None:
    """Unless it has got another name."""
    path, descriptor = file
    os.close(descriptor)
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _new_file(directory: Path) -> tuple[Path, int]:
    """Raises StoreError."""
    with reported("cannot write a header"):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor, path = tempfile.mkstemp(".tmp", "puna-", directory)
        return Path(path), descriptor
