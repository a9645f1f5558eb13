"""What is known of an unfinished download: files beside it, as Ollama has them, so that either goes on with
what the other began.

<blob>-partial        the blob's bytes, as far as they are there
<blob>-partial-<N>    of one of its parts: {"N":0,"Offset":0,"Size":100000000,"Completed":4096}, in bytes
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from puna.registry.store.files.regular_file import read_regular

PARTIAL = "-partial"
"""What the name of an unfinished download ends with."""

_MAX_RECORD_BYTES = 4096
_MAX_PARTS = 1 << 14
_RECORD_BYTES = 128
"""Padded to the same length, a record is replaced by one write: no kill leaves half of one."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]


class _Record(
    msgspec.Struct, rename={"number": "N", "offset": "Offset", "size": "Size", "done": "Completed"}
):
    number: _Count
    offset: _Count
    size: _Count
    done: _Count


@dataclass(slots=True)
class Part:
    """A range of the blob, of which the first `completed` bytes are there."""

    number: int
    offset: int
    size: int
    completed: int = 0

    @property
    def position(self) -> int:
        """Of the first byte that is missing."""
        return self.offset + self.completed

    @property
    def end(self) -> int:
        return self.offset + self.size

    @property
    def num_missing(self) -> int:
        return self.size - self.completed


def partial_path(blob: Path) -> Path:
    """Where the unfinished download of a blob lies."""
    return blob.with_name(blob.name + PARTIAL)


def part_paths(partial: Path) -> list[tuple[int, Path]]:
    """Numbers and files of the parts of an unfinished download. Raises OSError."""
    name = re.compile(re.escape(partial.name) + r"-(\d{1,9})", re.ASCII)
    found = ((name.fullmatch(entry), entry) for entry in os.listdir(partial.parent))  # noqa: PTH208
    return [(int(match[1]), partial.with_name(entry)) for match, entry in found if match]


def completed_bytes(partial: Path) -> int:
    """How much of it the records say is there. Raises OSError."""
    return sum(record.done for _, record, _ in _records(partial) if record)


def load_parts(partial: Path, num_bytes: int, file_bytes: int, part_bytes: int) -> list[Part]:
    """Parts that cover a blob of `num_bytes` without overlap, in order: those that have been begun, and new
    ones of `part_bytes` where there are none; the files of those say so, too.

    file_bytes: how long the unfinished download is: what would lie behind its end is not there.
    Records that cannot be true are deleted. Raises OSError.
    """
    begun: list[Part] = []
    numbers = set()
    for number, record, path in sorted(
        _records(partial), key=lambda found: found[1].offset if found[1] else 0
    ):
        end = begun[-1].end if begun else 0
        if record is None or not _can_be(record, end, num_bytes) or len(begun) >= _MAX_PARTS:
            path.unlink(missing_ok=True)
            continue
        numbers.add(number)
        there = min(record.done, max(file_bytes - record.offset, 0))
        begun.append(Part(number, record.offset, record.size, there))
        if there != record.done:
            save_part(partial, begun[-1])
    free_numbers = (number for number in range(1 << 30) if number not in numbers)
    parts = list(_covering(begun, num_bytes, part_bytes, free_numbers))
    for part in parts:
        if part.number not in numbers:
            save_part(partial, part)
    return parts


def save_part(partial: Path, part: Part) -> None:
    """Records how far the part is. Raises OSError."""
    record = msgspec.json.encode(_Record(part.number, part.offset, part.size, part.completed))
    path = f"{partial}-{part.number}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        os.pwrite(descriptor, record.ljust(_RECORD_BYTES), 0)
    finally:
        os.close(descriptor)


def delete_parts(partial: Path) -> None:
    """Deletes the records. Raises OSError."""
    for _, path in part_paths(partial):
        path.unlink(missing_ok=True)


def _records(partial: Path) -> Iterator[tuple[int, _Record | None, Path]]:
    """None for a file that is no record: whoever wrote it was killed meanwhile."""
    for number, path in part_paths(partial):
        try:
            yield number, msgspec.json.decode(read_regular(path, _MAX_RECORD_BYTES), type=_Record), path
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            yield number, None, path


def _can_be(record: _Record, end_before: int, num_bytes: int) -> bool:
    fits = end_before <= record.offset and record.offset + record.size <= num_bytes
    return fits and record.size > 0 and record.done <= record.size


def _covering(
    begun: Sequence[Part], num_bytes: int, part_bytes: int, numbers: Iterator[int]
) -> Iterator[Part]:
    position = 0
    for part in (*begun, None):
        end = part.offset if part else num_bytes
        for offset in range(position, end, part_bytes):
            yield Part(next(numbers), offset, min(part_bytes, end - offset))
        if part:
            yield part
            position = part.end
