"""How much memory processes have, as the system counts it. Linux only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Memory(NamedTuple):
    """In bytes; a page that several processes map counts as a part in each of them."""

    pss: int
    anonymous: int
    """Of these: what is no file's, such as KV, buffers and repacked weights; not mapped weights."""

    def __add__(self, other: object) -> Memory:
        if not isinstance(other, Memory):
            return NotImplemented
        return Memory(self.pss + other.pss, self.anonymous + other.anonymous)


def memory_of(*pids: int, proc: Path = _PROC) -> Memory:
    """Of these processes together. Raises OSError if one is gone, ValueError if it has no memory."""
    total = Memory(0, 0)
    for pid in pids:
        text = (proc / str(pid) / "smaps_rollup").read_text()
        total += Memory(_bytes(text, "Pss"), _bytes(text, "Pss_Anon"))
    return total


def children(pid: int, proc: Path = _PROC) -> list[int]:
    """In the order in which they were started, nearly."""
    return sorted(int(stat.parent.name) for stat in proc.glob("[0-9]*/stat") if _parent(stat) == pid)


def family(pid: int) -> list[int]:
    """The process and all that descends from it, now."""
    found = [pid]
    for member in found:
        found += children(member)
    return found


def worker_of(daemon_pid: int) -> int:
    """The daemon's engine worker. Raises RuntimeError unless there is exactly one."""
    workers = [pid for pid in children(daemon_pid) if b"puna.worker.engine" in _command_line(pid)]
    if len(workers) != 1:
        raise RuntimeError(f"the daemon has {len(workers)} engine workers")
    return workers[0]


def _bytes(text: str, name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    if match is None:
        raise ValueError(f"smaps_rollup has no {name}")
    return int(match[1]) * 1024


def _parent(stat: Path) -> int | None:
    """None: it has ended meanwhile."""
    try:
        text = stat.read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])  # behind the name, which may hold anything


def _command_line(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""
