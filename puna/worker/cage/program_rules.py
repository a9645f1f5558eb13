"""What a program that is not ours needs: its libraries, what the system says of itself, and GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from puna.worker.cage.rules import CageRules

_LIBRARIES = (
    *("/lib", "/lib64", "/usr"),
    *("/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime", "/etc/alternatives"),
    *("/opt/rocm", "/opt/cuda", "/nix/store", "/gnu/store", "/run/opengl-driver"),
)
_SYSTEM = (
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/devices", "/proc/driver/nvidia", "/proc/sys/vm"),
    *("/sys/devices", "/sys/bus", "/sys/class", "/sys/dev", "/sys/module"),
    *("/etc/OpenCL", "/etc/vulkan", "/etc/glvnd", "/dev/urandom", "/dev/zero"),
)
_DEVICES = ("/dev/null", "/dev/kfd", "/dev/dri", "/dev/nvidia-caps")
_NVIDIA = "nvidia*"


class Places(NamedTuple):
    """Where what a program executes lies, besides the system's libraries."""

    executable: tuple[Path, ...]
    """Files, and directories with all that is in them."""
    listable: tuple[Path, ...] = ()


def places_of(program: Path) -> Places:
    """The program and the libraries beside it, or in `lib` beside its `bin`, but no other file there: it may
    lie in a home directory. Where there are libraries, it may look for their names.
    """
    program = program.resolve()
    directories = [program.parent]
    if program.parent.name == "bin":
        directories.append(program.parent.parent / "lib")
    libraries = {
        directory: [path for path in directory.glob("*.so*") if path.is_file()] for directory in directories
    }
    return Places(
        executable=(program, *(path for paths in libraries.values() for path in paths)),
        listable=tuple(directory for directory, paths in libraries.items() if paths),
    )


def program_rules(places: Places, directory: Path, *files: int) -> CageRules:
    """For a process that becomes the program of these places, reads what the descriptors `files` are of, also
    by name, and listens on a Unix socket in the directory.
    """
    return CageRules(
        readable=(*map(Path, _SYSTEM), *(Path(f"/proc/self/fd/{file}") for file in files)),
        listable=places.listable,
        executable=(*map(Path, _LIBRARIES), *places.executable),
        devices=(*map(Path, _DEVICES), *Path("/dev").glob(_NVIDIA)),
        writable=(directory,),
        sockets="listens",
    )
