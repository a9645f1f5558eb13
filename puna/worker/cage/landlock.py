"""Landlock: which files a process may open, and that it reaches no others by network or signals.

The interface: Linux's Documentation/userspace-api/landlock.rst; its numbers: include/uapi/linux/landlock.h.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from contextlib import suppress
from pathlib import Path

from puna.worker.cage.rules import CageRules
from puna.worker.cage.system import syscall

# The same on every machine.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_FILE = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_MAKE_SOCKET = 1 << 9
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_FIRST_RIGHTS = (1 << 13) - 1
_RIGHTS_SINCE = {2: _REFER, 3: _TRUNCATE, 5: _IOCTL_DEVICE}
_NETWORK = 0b11  # bind and connect of TCP
_SCOPES = 0b11  # abstract Unix sockets, signals

_READ = _READ_FILE | _READ_DIR
_CHANGE = _READ | _WRITE_FILE | _TRUNCATE | _REFER | _MAKE_FILE | _REMOVE_FILE | _MAKE_DIR | _REMOVE_DIR
_DEVICE = _READ | _WRITE_FILE
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE

_PROC = Path("/proc")


def version() -> int:
    """Of the kernel's interface; 0: there is none, or it is switched off."""
    try:
        return syscall(_CREATE_RULESET, None, 0, _GET_VERSION)
    except OSError:
        return 0


def restrict(rules: CageRules, version: int) -> None:
    """Holds the calling thread, and those that it starts, to the rules: at least version 1 is needed.

    The process must have given up new privileges. Raises OSError.
    """
    handled = _FIRST_RIGHTS
    for since, rights in _RIGHTS_SINCE.items():
        handled |= rights if version >= since else 0
    # Older kernels know a shorter struct.
    fields = [handled, *([_NETWORK] if version >= 4 else []), *([_SCOPES] if version >= 6 else [])]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for paths, rights in (
            (rules.readable, _READ),
            (rules.listable, _READ_DIR),
            (rules.executable, _READ | _EXECUTE),
            (rules.writable, _CHANGE),
            ((rules.listens_in,) if rules.listens_in else (), _MAKE_SOCKET),
            (rules.devices, _DEVICE | (_IOCTL_DEVICE if rules.controls_devices else 0)),
        ):
            for path in paths:
                with suppress(FileNotFoundError):
                    _allow(ruleset, path, rights & handled)
        syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, descriptor)
        syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
    except OSError as error:
        # Files that no directory can hold, as those of memfd_create(2), take no rule, and need none.
        if error.errno != errno.EBADFD:
            raise
    finally:
        # A rule is about an inode, and /proc makes new ones for names that it has forgotten meanwhile. Names
        # of what is open it does not forget.
        if not path.is_relative_to(_PROC):
            os.close(descriptor)
