"""What a program that is not ours needs: its libraries, what the system says of itself, and GPUs."""

from __future__ import annotations

from pathlib import Path

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


def program_rules(program: Path, directory: Path, *files: int) -> CageRules:
    """For a process that becomes `program`, reads what the descriptors `files` are of, also by name, and
    listens on a Unix socket in the directory.
    """
    program = program.resolve()
    places = [program.parent, program.parent.parent / "lib"] if _is_prefix(program) else [program.parent]
    return CageRules(
        readable=(*map(Path, _SYSTEM), *(Path(f"/proc/self/fd/{file}") for file in files)),
        executable=(*map(Path, _LIBRARIES), *places),
        devices=(*map(Path, _DEVICES), *Path("/dev").glob(_NVIDIA)),
        writable=(directory,),
        sockets="listens",
    )


def _is_prefix(program: Path) -> bool:
    """Whether it lies as installed programs do, with its libraries beside its directory."""
    return program.parent.name == "bin"
