"""Entering a cage, from which there is no way out."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from contextlib import suppress
from pathlib import Path

from puna.worker.cage import landlock, seccomp
from puna.worker.cage.rules import CageLevel, CageRules
from puna.worker.cage.syscalls import Machine, this_machine
from puna.worker.cage.system import prctl, syscall

_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION = 0x20080522
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1 << 1, 1 << 2


def enter(rules: CageRules) -> CageLevel:
    """Cages this process for good, with all threads that it will start.

    To be called before it reads anything untrusted, and when all modules are imported. Where the kernel lacks
    something, the cage is what is left: see the level.
    """
    time.tzset()  # reads the time zone's file, which cannot be opened later
    machine = this_machine()
    with suppress(OSError):  # a kernel that knows none has neither of the other two, which then say so
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
    reasons: list[str] = []
    landlock_version = _enter_landlock(rules, reasons)
    has_seccomp = machine is not None and _enter_seccomp(rules, machine, reasons)
    if machine is None:
        reasons.append("the system calls of this machine are not known")
    is_low = not has_seccomp or (rules.opens_files and not landlock_version)
    return CageLevel(landlock_version, has_seccomp, is_low, "; ".join(reasons))


def _enter_landlock(rules: CageRules, reasons: list[str]) -> int:
    """The version that holds."""
    version = min(landlock.version(), rules.newest_landlock)
    if not version:
        reasons.append("the kernel has no Landlock, or it is switched off")
        return 0
    num_threads = len(list(Path("/proc/self/task").iterdir()))
    try:
        landlock.restrict(rules, version)
    except OSError as error:
        reasons.append(f"Landlock: {error}")
        return 0
    if num_threads > 1:  # it holds the thread that calls, and those that are started by it
        reasons.append(f"{num_threads - 1} threads were started before")
        return 0
    return version


def _enter_seccomp(rules: CageRules, machine: Machine, reasons: list[str]) -> bool:
    try:
        _drop_capabilities(machine, _kept_capabilities(rules))
        seccomp.restrict(rules, machine, os.getpid())
    except OSError as error:
        reasons.append(f"seccomp: {error}")
        return False
    return True


def _kept_capabilities(rules: CageRules) -> int:
    """A directory that may be written may belong to another user, and so may a program's files."""
    if rules.writable:
        return _CAP_DAC_OVERRIDE
    return _CAP_DAC_READ_SEARCH if rules.executable else 0


def _drop_capabilities(machine: Machine, kept: int) -> None:
    """A daemon of root's has them all."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    data = ctypes.create_string_buffer(24)  # effective, permitted, inheritable; their upper 32 bits
    syscall(machine.capget, header, data)
    effective, permitted = struct.unpack_from("=2I", data.raw)
    syscall(machine.capset, header, struct.pack("=6I", effective & kept, permitted & kept, 0, 0, 0, 0))
