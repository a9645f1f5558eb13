"""Opens models' files, so that no descriptor is lost when the request is cancelled."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from puna.backends.base import ModelLoadError, ModelSource
from puna.convert.errors import ConversionError
from puna.convert.job import ConvertJob
from puna.daemon.converting import Converter
from puna.registry import ModelEntry
from puna.registry.errors import StoreError
from puna.registry.in_thread import in_thread
from puna.registry.local.local_directory import LocalDirectory
from puna.registry.local.local_models import LocalModels
from puna.registry.store.files.reported import reported


class ModelOpener:
    """Of directories of safetensors it makes the headers, once for all who wait for one."""

    def __init__(self, converter: Converter, local: LocalModels) -> None:
        self._converter = converter
        self._local = local
        self._making: dict[Path, asyncio.Task[None]] = {}

    async def open(self, model: ModelEntry, *, sees: bool = False) -> ModelSource:
        """For the caller to close. sees: with its projector's file. Raises MissingBlob, StoreError,
        ModelLoadError.
        """
        if isinstance(model, LocalDirectory):
            return await self._open_directory(model)
        source = await _opened(model, model.open)
        if not sees:
            return source
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
        for task in self._making.values():
            task.cancel()
        await asyncio.gather(*self._making.values(), return_exceptions=True)

    async def _open_directory(self, model: LocalDirectory) -> ModelSource:
        try:
            descriptors = await in_thread(lambda _: model.open_weights(), _close_all)
        except FileNotFoundError:
            if (making := self._making.get(model.header)) is None:
                making = self._making[model.header] = asyncio.create_task(self._make_header(model))
                making.add_done_callback(lambda task: self._made(model.header, task))
            await asyncio.shield(making)  # others may wait for it, too
            try:
                descriptors = await in_thread(lambda _: model.open_weights(), _close_all)
            except FileNotFoundError as error:  # somebody has just cleared it away
                raise StoreError(f"the header of {model.name.short} is gone") from error
        return ModelSource(model.name.short, descriptors)

    def _made(self, header: Path, task: asyncio.Task[None]) -> None:
        del self._making[header]
        if not task.cancelled():
            task.exception()  # who still waits is told

    async def _make_header(self, model: LocalDirectory) -> None:
        files = await asyncio.to_thread(model.open_files)
        try:
            temporary, output = await asyncio.to_thread(_new_file, model.header.parent)
            try:
                async with aclosing(self._converter.convert(files, output, ConvertJob("header"))) as steps:
                    async for _ in steps:
                        pass
                model.check_same(files)
                await asyncio.to_thread(self._put, temporary, model.header)
            except ConversionError as error:
                raise ModelLoadError(f"{model.name.short}: {error}") from error
            finally:
                os.close(output)
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)
        finally:
            _close_all(tuple(files.values()))

    def _put(self, temporary: Path, header: Path) -> None:
        with reported("cannot write a header"):
            temporary.replace(header)
            self._local.remove_unused_headers()


async def open_adapter(model: ModelEntry) -> ModelSource:
    """The adapter of a model that has one, for the caller to close. Raises MissingBlob, StoreError."""
    return await _opened(model, model.open_adapter)


async def open_projector(model: ModelEntry) -> ModelSource:
    """The same, of the file that its projector is in."""
    return await _opened(model, model.open_projector)


async def _opened(model: ModelEntry, open_file: Callable[[], int]) -> ModelSource:
    descriptor = await in_thread(lambda _: open_file(), os.close)
    return ModelSource(model.name.short, (descriptor,))


def _close_all(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _new_file(directory: Path) -> tuple[Path, int]:
    """Raises StoreError."""
    with reported("cannot write a header"):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor, path = tempfile.mkstemp(".tmp", "puna-", directory)
        return Path(path), descriptor
