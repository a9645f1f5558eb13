"""Reading single members of zip files that a stranger made, in bounded memory.

Nothing is ever extracted to the path that a member names. Members that are not stored or deflated (other
methods cannot be unpacked in bounded memory), encrypted, links, or named twice are refused, and so is what
grows more than weights do, or unpacks to more or less than was announced.
"""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from puna.registry.errors import PullError

_CHUNK_BYTES = 1 << 20
# The list of members is read in one piece: of some 20,000 members at most.
_MAX_READ_BYTES = 1 << 20
# Quantized weights hardly compress; a member that grows more than this is no model but a zip bomb.
_MAX_RATIO = 20
_MAX_NAME_CHARS = 100

_ENCRYPTED = 0x1 | 0x40


class Member(NamedTuple):
    """A file inside a zip file; `num_bytes` unpacked."""

    archive: Path
    name: str
    num_bytes: int


def members(path: Path, is_wanted: Callable[[str], object]) -> list[Member]:
    """Those with such names. Raises PullError, also if one of them cannot be unpacked safely."""
    with _archive(path) as archive:
        infos = [info for info in archive.infolist() if is_wanted(info.filename)]
    names = set()
    for info in infos:
        if info.filename in names:
            raise _unusable(path, info, "named twice")
        names.add(info.filename)
        _check(path, info)
    return [Member(path, info.filename, info.file_size) for info in infos]


def read_member(member: Member) -> Iterator[bytes]:
    """The unpacked bytes, piece by piece; exactly as many as announced. Raises PullError."""
    with _archive(member.archive) as archive:
        info = archive.getinfo(member.name)
        with _reported(member.archive, f"{shown_name(member.name)}: "), archive.open(info) as file:
            num_bytes = 0
            while chunk := file.read(_CHUNK_BYTES):
                num_bytes += len(chunk)
                yield chunk
        if num_bytes != info.file_size:
            raise _unusable(member.archive, info, f"{num_bytes} bytes instead of {info.file_size}")


def shown_name(name: str) -> str:
    """A member's name for an error text."""
    return ascii(name[:_MAX_NAME_CHARS])[1:-1]


def _check(path: Path, info: zipfile.ZipInfo) -> None:
    if info.flag_bits & _ENCRYPTED:
        raise _unusable(path, info, "encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _unusable(path, info, f"compression method {info.compress_type}")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG) or info.is_dir():
        raise _unusable(path, info, "not a regular file")
    if info.file_size > _CHUNK_BYTES and info.file_size > _MAX_RATIO * info.compress_size:
        raise _unusable(path, info, f"would grow from {info.compress_size} to {info.file_size} bytes")


def _unusable(path: Path, info: zipfile.ZipInfo, reason: str) -> PullError:
    return PullError(f"{path.name}: {shown_name(info.filename)}: {reason}")


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    with _reported(path):
        file = _BoundedFile(io.FileIO(path))
    with file:
        with _reported(path):
            archive = zipfile.ZipFile(file)
        with archive:
            yield archive


class _BoundedFile(io.BufferedReader):
    """A file that is never read in pieces larger than an honest zip file needs."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = _MAX_READ_BYTES + 1
        data = super().read(min(size, _MAX_READ_BYTES + 1))
        if len(data) > _MAX_READ_BYTES:
            raise zipfile.BadZipFile("too many members")
        return data


@contextmanager
def _reported(path: Path, place: str = "") -> Iterator[None]:
    """Turns everything that zipfile raises for damaged or hostile files into a PullError."""
    try:
        yield
    except (
        *(zipfile.BadZipFile, zlib.error, EOFError, OSError),
        *(NotImplementedError, RuntimeError, ValueError, OverflowError, MemoryError),
    ) as error:
        raise PullError(f"{path.name}: {place}{str(error)[:200]!a}") from error
