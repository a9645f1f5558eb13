"""The control groups of this process: where Linux says how much of the machine it may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal


def control_groups(controller: str, version: Literal[1, 2], root: Path = Path("/")) -> Iterator[Path]:
    """Directories of this process's group and of those above it: the strictest limit counts.

    root: where the system's /proc and /sys/fs/cgroup are found.
    """
    mount = root / "sys/fs/cgroup"
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers != "" if version == 2 else controller not in controllers.split(","):
            continue
        group = mount / controllers / path.lstrip("/")
        # In a container the path may be the host's, which is not mounted: its parents end at the mount.
        for directory in (group, *group.parents):
            if not directory.is_relative_to(mount):
                break
            yield directory


def read_text(path: Path) -> str:
    """Empty if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
