"""What a caged process may still do, and how far the kernel sees to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

NEWEST_LANDLOCK = 7
"""The newest version of Landlock's interface whose rules are known here."""


@dataclass(frozen=True, slots=True)
class CageRules:
    """The files that a process opens by name once it is caged. What it inherits or is sent is its own.

    Without any, it opens none at all, and seccomp sees to it where there is no Landlock, too.
    """

    readable: tuple[Path, ...] = ()
    """Files, and directories with all that is in them. Those that do not exist are left out."""
    writable: tuple[Path, ...] = ()
    """Directories, which exist: files and directories in them may be read, made, changed, and removed."""
    newest_landlock: int = NEWEST_LANDLOCK
    """No newer version is used, as if the kernel were older; 0: none."""
    listable: tuple[Path, ...] = ()
    """Directories whose names, and those in directories below them, may be read, but no file."""
    executable: tuple[Path, ...] = ()
    """As `readable`, and what is in them may be executed: the process becomes another program, which loads
    libraries of its own. Without any, no memory is ever executable that was not before."""
    devices: tuple[Path, ...] = ()
    """Read and written. Those that do not exist are left out."""
    controls_devices: bool = False
    """Whether it controls them as the drivers of GPUs have it."""
    connects: bool = False
    """Whether it may make Unix sockets and connect them, to any other."""
    listens_in: Path | None = None
    """A directory in which it may make Unix sockets, and wait on them for others to connect."""

    @property
    def opens_files(self) -> bool:
        return bool(self.readable or self.writable or self.executable)


class CageLevel(msgspec.Struct, frozen=True):
    """What holds a caged process."""

    landlock: int
    """The version of Landlock's interface; 0: it is not held by Landlock."""
    seccomp: bool
    is_low: bool
    """Something that the rules deny is not denied. Any version of Landlock will do: seccomp denies what newer
    ones add, and all files to those who open none.
    """
    reason: str = ""
    """Why something is missing."""

    @property
    def description(self) -> str:
        """`Landlock 7, seccomp`; `seccomp, no Landlock (the kernel has none)`."""
        landlock = f"Landlock {self.landlock}" if self.landlock else "no Landlock"
        seccomp = "seccomp" if self.seccomp else "no seccomp"
        parts = [landlock, seccomp] if self.landlock or not self.seccomp else [seccomp, landlock]
        return ", ".join(parts) + (f" ({self.reason})" if self.reason else "")

    @property
    def warning(self) -> str | None:
        """What a user should know; None: nothing."""
        if not self.is_low:
            return None
        return (
            f"held by {self.description}: a model file that takes over such a process could reach your files"
        )
