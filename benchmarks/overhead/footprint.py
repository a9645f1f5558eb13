"""Memory of a group of processes as if nobody else ran the same program. Linux only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.memory.processes import memory_of

_HEAD = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ ([0-9a-f]+) (\S+) (\d+)")


class _Part(NamedTuple):
    """Of a file."""

    device: str
    inode: int
    offset: int


def footprint(pids: Sequence[int]) -> int:
    """PSS in bytes, but pages of files count once, however many processes map them, here or elsewhere.

    Where several processes map a part of a file, it is as large as the process has it that has most of it.
    """
    files: dict[_Part, int] = {}
    for pid in pids:
        for part, num_bytes in file_pages(Path(f"/proc/{pid}/smaps").read_text()):
            files[part] = max(files.get(part, 0), num_bytes)
    return memory_of(*pids).anonymous + sum(files.values())


def file_pages(smaps: str) -> Iterator[tuple[_Part, int]]:
    """Resident pages that are a file's (memory files' included), in bytes; not private copies of them."""
    part: _Part | None = None
    resident = 0
    for line in smaps.splitlines():
        if head := _HEAD.match(line):
            part = _Part(head[2], int(head[3]), int(head[1], 16)) if int(head[3]) else None
        elif part is not None and line.startswith("Rss:"):
            resident = _kilobytes(line)
        elif part is not None and line.startswith("Anonymous:"):
            yield part, (resident - _kilobytes(line)) * 1024


def _kilobytes(line: str) -> int:
    return int(line.split()[1])
