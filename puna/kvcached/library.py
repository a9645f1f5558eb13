"""The C functions of kvcached.h, with exceptions for statuses."""

from __future__ import annotations

import ctypes
import weakref
from functools import cache

import numpy as np
from numpy.typing import NDArray

from puna.kvcached.paths import library_path

_Handle = ctypes.c_void_p
_BlockIds = ctypes.POINTER(ctypes.c_int64)


class ContextStats(ctypes.Structure):
    """kvcached_stats_t"""

    limit_bytes: int
    committed_bytes: int
    peak_committed_bytes: int
    num_allocations: int
    num_pools: int

    _fields_ = (
        ("limit_bytes", ctypes.c_size_t),
        ("committed_bytes", ctypes.c_size_t),
        ("peak_committed_bytes", ctypes.c_size_t),
        ("num_allocations", ctypes.c_size_t),
        ("num_pools", ctypes.c_size_t),
    )


class PoolStats(ctypes.Structure):
    """kvcached_pool_stats_t"""

    num_blocks: int
    num_used: int
    block_bytes: int
    page_bytes: int
    committed_bytes: int

    _fields_ = (
        ("num_blocks", ctypes.c_size_t),
        ("num_used", ctypes.c_size_t),
        ("block_bytes", ctypes.c_size_t),
        ("page_bytes", ctypes.c_size_t),
        ("committed_bytes", ctypes.c_size_t),
    )


_SIGNATURES = {
    "kvcached_last_error": (ctypes.c_int, ()),
    "kvcached_last_error_message": (ctypes.c_char_p, ()),
    "kvcached_init": (_Handle, (ctypes.c_int,)),
    "kvcached_shutdown": (None, (_Handle,)),
    "kvcached_set_limit": (None, (_Handle, ctypes.c_size_t)),
    "kvcached_get_stats": (ctypes.c_int, (_Handle, ctypes.POINTER(ContextStats))),
    "kvcached_pool_create": (_Handle, (_Handle, ctypes.c_size_t, ctypes.c_size_t)),
    "kvcached_pool_alloc": (ctypes.c_int, (_Handle, ctypes.c_size_t, _BlockIds)),
    "kvcached_pool_free": (ctypes.c_int, (_Handle, _BlockIds, ctypes.c_size_t)),
    "kvcached_pool_clear": (ctypes.c_int, (_Handle,)),
    "kvcached_pool_base": (ctypes.c_void_p, (_Handle,)),
    "kvcached_pool_get_stats": (ctypes.c_int, (_Handle, ctypes.POINTER(PoolStats))),
}
_DEFERRED = 1
# kvcached_status_t; every other failure is a RuntimeError.
_EXCEPTIONS: dict[int, type[Exception]] = {
    -1: ValueError,  # invalid argument
    -4: ValueError,  # unknown block
    -5: MemoryError,  # limit
    -6: MemoryError,  # the system's memory
    -7: MemoryError,  # blocks
}


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(library_path()))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _check() -> int:
    """The status of this thread's last call, if that was a success."""
    status: int = _library().kvcached_last_error()
    if status < 0:
        raise _EXCEPTIONS.get(status, RuntimeError)(_library().kvcached_last_error_message().decode())
    return status


class Context:
    """A limit; released with the last reference to it or to one of its pools."""

    def __init__(self) -> None:
        self.handle = _library().kvcached_init(0)
        _check()
        # Not at exit, when arrays may still be in use: then everything goes anyway.
        weakref.finalize(self, _library().kvcached_shutdown, self.handle).atexit = False

    def set_limit(self, limit_bytes: int) -> bool:
        """Returns whether it applies at once."""
        if not isinstance(limit_bytes, int | np.integer) or not 0 <= limit_bytes < 1 << 63:
            raise ValueError(f"a limit of {limit_bytes!r:.100} makes no sense: bytes, as an integer")
        _library().kvcached_set_limit(self.handle, limit_bytes)
        return _check() != _DEFERRED

    def stats(self) -> ContextStats:
        stats = ContextStats()
        _library().kvcached_get_stats(self.handle, stats)
        _check()
        return stats


class Pool:
    """Blocks of memory; as an array, all of their addresses as bytes. Arrays keep the addresses reserved."""

    def __init__(self, context: Context, num_blocks: int, block_bytes: int) -> None:
        """num_blocks: 0 for as many as the limit allows."""
        if num_blocks >= 1 << 63 or block_bytes >= 1 << 63:
            raise ValueError(f"{num_blocks} blocks of {block_bytes} bytes make no sense")
        self._context = context
        self._handle = _library().kvcached_pool_create(context.handle, num_blocks, block_bytes)
        _check()
        self.num_blocks, self.block_bytes = self.stats().num_blocks, self.stats().block_bytes
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (self.num_blocks * self.block_bytes,),
            "data": (_library().kvcached_pool_base(self._handle), False),
        }

    def alloc(self, num_blocks: int) -> list[int]:
        """Raises MemoryError if there are not that many."""
        ids = np.empty(num_blocks, np.int64)
        _library().kvcached_pool_alloc(self._handle, num_blocks, ids.ctypes.data_as(_BlockIds))
        _check()
        return ids.tolist()

    def free(self, ids: NDArray[np.int64]) -> None:
        """Raises ValueError, and frees none, if one is not allocated or comes twice."""
        _library().kvcached_pool_free(self._handle, ids.ctypes.data_as(_BlockIds), ids.size)
        _check()

    def clear(self) -> None:
        _library().kvcached_pool_clear(self._handle)
        _check()

    def stats(self) -> PoolStats:
        stats = PoolStats()
        _library().kvcached_pool_get_stats(self._handle, stats)
        _check()
        return stats
