"""What a program that is not ours needs: its libraries, what the system says of itself, and GPUs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from puna.worker.cage.rules import CageRules

_LIBRARIES = (
    *(
        "/lib",
        "/lib32",
        "/lib64",
        "/usr/lib",
        "/usr/lib32",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/local/lib64",
    ),
    *("/usr/local/cuda*", "/opt/cuda", "/opt/rocm*/lib", "/opt/rocm*/lib64", "/opt/rocm*/llvm/lib"),
    *("/opt/rocm*/amdgcn", "/opt/amdgpu*/lib", "/nix/store", "/gnu/store", "/run/opengl-driver"),
    *("/etc/ld.so.cache", "/etc/ld.so.preload"),
)
"""Patterns of what is in the system's libraries' places."""
_DESCRIPTIONS = (
    *("/etc/vulkan", "/usr/share/vulkan", "/usr/local/etc/vulkan", "/usr/local/share/vulkan"),
    *("/etc/OpenCL", "/usr/share/nvidia", "/usr/share/libdrm", "/opt/amdgpu*/share/libdrm"),
    *("/etc/drirc", "/usr/share/drirc.d", "/etc/glvnd", "/usr/share/glvnd"),
)
"""By which drivers of GPUs are found and told apart: Vulkan's, OpenCL's, NVIDIA's, libdrm's and Mesa's."""
_SYSTEM = (
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/devices", "/proc/driver/nvidia", "/proc/sys/vm"),
    *("/sys/devices", "/sys/bus", "/sys/class", "/sys/dev", "/sys/module"),
    *("/dev/urandom", "/dev/zero", "/etc/localtime"),
)
_GPUS = ("/dev/kfd", "/dev/dri", "/dev/nvidia*")
_NOTHING = Path("/dev/null")

_BACKENDS = "libggml"
"""How the names of libraries begin that llama.cpp loads by name. Beside them may lie thousands of others."""
_LDD_S = 10.0
_FOUND = re.compile(r"^\s*(?:(.+) => )?(/.+) \(0x[0-9a-f]+\)$", re.MULTILINE)
"""In what ldd says: `libm.so.6 => /lib/libm.so.6 (0x00007f12)`. A loader's other name is a path, too."""


class Places(NamedTuple):
    """Where what a program executes lies, besides the system's libraries."""

    executable: tuple[Path, ...]
    """Files, and directories with all that is in them."""
    listable: tuple[Path, ...] = ()


def places_of(program: Path) -> Places:
    """The program, the libraries that its loader finds, and those beside it, or in `lib` beside its `bin`; no
    other file there: it may lie in a home directory. Where there are libraries beside it, it may look for
    their names.
    """
    program = program.resolve()
    directories = [program.parent]
    if program.parent.name == "bin":
        directories.append(program.parent.parent / "lib")
    system = {path.resolve() for path in _found(_LIBRARIES)}
    beside = {
        directory: [path for path in directory.glob("*.so*") if path.is_file()]
        for directory in directories
        if directory.resolve() not in system
    }
    libraries = [path for paths in beside.values() for path in paths]
    backends = [path for path in libraries if path.name.startswith(_BACKENDS)]
    return Places(
        executable=(program, *libraries, *_needed([program, *backends])),
        listable=tuple(directory for directory, paths in beside.items() if paths),
    )


def program_rules(places: Places, directory: Path, *files: int) -> CageRules:
    """For a process that becomes the program of these places, reads what the descriptors `files` are of, also
    by name, and listens on a Unix socket in the directory.
    """
    gpus = tuple(_found(_GPUS))
    return CageRules(
        readable=(*_found(_DESCRIPTIONS + _SYSTEM), *(Path(f"/proc/self/fd/{file}") for file in files)),
        listable=places.listable,
        executable=(*_found(_LIBRARIES), *places.executable),
        devices=(_NOTHING, *gpus),
        controls_devices=bool(gpus),
        listens_in=directory,
    )


def _found(patterns: Iterable[str]) -> list[Path]:
    return [path for pattern in patterns for path in Path("/").glob(pattern.removeprefix("/"))]


def _needed(files: list[Path]) -> list[Path]:
    """The libraries that the loader would load for these, and itself, wherever they lie. None if the system
    has no ldd, and those of files that are no dynamic programs.
    """
    ldd = shutil.which("ldd", path=os.defpath)
    if ldd is None:
        return []
    try:
        done = subprocess.run([ldd, *files], capture_output=True, text=True, timeout=_LDD_S)
    except subprocess.TimeoutExpired:
        return []
    names = {name for names in _FOUND.findall(done.stdout) for name in names}
    return [Path(name) for name in sorted(names) if name.startswith("/")]
