"""System calls for which Python has no function."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.prctl.restype = ctypes.c_int


def syscall(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Integers are passed as C longs, the others by address (arrays: the kernel writes). Raises OSError."""
    passed = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *passed))


def prctl(option: int, *arguments: int) -> int:
    """Raises OSError."""
    values = (*arguments, 0, 0, 0, 0)[:4]
    return _checked(_libc.prctl(option, *(ctypes.c_ulong(value) for value in values)))


def _checked(result: int) -> int:
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
