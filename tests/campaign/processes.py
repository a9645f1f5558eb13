"""The processes of a daemon, as /proc shows them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_KINDS = {"puna.worker.engine": "engine", "puna.worker.text": "zygote"}


class Usage(NamedTuple):
    """What one process has."""

    anonymous_bytes: int
    """Its share of anonymous memory (PSS): what is shared by several counts in parts."""
    num_descriptors: int
    num_threads: int


def family(daemon: int) -> dict[int, str]:
    """Kinds of the daemon's living children and grandchildren, by process id."""
    found: dict[int, str] = {}
    for child in children(daemon):
        kind = _kind(child)
        found[child] = kind
        if kind == "zygote":
            found |= dict.fromkeys(children(child), "text")
    return found


def children(pid: int) -> list[int]:
    """Living ones."""
    try:
        listed = [
            int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _words(task / "children")
        ]
    except FileNotFoundError:
        return []
    return [child for child in listed if is_running(child)]


def is_running(pid: int) -> bool:
    """False for a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def session_members(session: int) -> list[int]:
    """Running processes that descend from the one that made the session, parents alive or not."""
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208 only names are wanted
        if not entry.isdigit() or not is_running(int(entry)):
            continue
        with suppress(ProcessLookupError):
            if os.getsid(int(entry)) == session:
                found.append(int(entry))
    return found


def usage(pid: int) -> Usage:
    """Raises FileNotFoundError, ProcessLookupError for a process that has ended."""
    process = Path(f"/proc/{pid}")
    rollup = (line.split() for line in (process / "smaps_rollup").read_text().splitlines())
    anonymous = next(int(words[1]) << 10 for words in rollup if words[0] == "Pss_Anon:")
    num_descriptors = len(os.listdir(process / "fd"))  # noqa: PTH208 links to sockets lead nowhere
    status = (line.split() for line in (process / "status").read_text().splitlines())
    num_threads = next(int(words[1]) for words in status if words[0] == "Threads:")
    return Usage(anonymous, num_descriptors, num_threads)


def descriptors(pid: int) -> list[str]:
    """What its descriptors are, without numbers."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(re.sub(r"[0-9a-f]{6,}|\d+", "", str(link.readlink())))
    return found


def _kind(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return "other"
    return next((kind for module, kind in _KINDS.items() if module in words), "other")


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # the task has ended
        return []
