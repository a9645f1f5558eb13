"""One elastic KV cache per process: what kvcached's integrations of engines call."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from puna.kvcached.library import Context, Pool

_DTYPES = ("float16", "float32", "int8", "uint8")
_ATTENTION_TYPES = ("MHA", "GQA")
_LAYOUTS = ("NHD",)
_DEVICES = ("cpu", "cpu:0")


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """In bytes, but for the blocks. Without a KV cache the blocks are 0."""

    limit: int
    committed: int
    """Above the limit only after that was set below it."""
    peak_committed: int
    num_blocks: int
    num_used_blocks: int


class _Shape(NamedTuple):
    num_blocks: int  # 0: as many as the limit allows
    block_size: int
    num_heads: int
    head_dim: int


class _State:
    """What init_kvcached() and alloc_kv_cache() made."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._context: Context | None = None
        self._pool: Pool | None = None

    def init(self) -> None:
        with self.lock:
            self._context = self._context or Context()

    def make_pool(self, num_blocks: int, block_bytes: int) -> Pool:
        with self.lock:
            if self._pool is not None:
                raise RuntimeError("there is a KV cache already: call shutdown_kvcached() first")
            self._pool = Pool(self.context, num_blocks, block_bytes)
            return self._pool

    @property
    def context(self) -> Context:
        if self._context is None:
            raise RuntimeError("kvcached is not initialized: call init_kvcached() first")
        return self._context

    @property
    def pool(self) -> Pool:
        pool = self._pool
        if pool is None:
            raise RuntimeError("there is no KV cache: call alloc_kv_cache() first")
        return pool

    def stats(self) -> MemoryStats:
        stats, pool = self.context.stats(), self._pool
        blocks = (pool.num_blocks, pool.stats().num_used) if pool else (0, 0)
        return MemoryStats(stats.limit_bytes, stats.committed_bytes, stats.peak_committed_bytes, *blocks)

    def shut_down(self) -> None:
        with self.lock:
            pool, self._pool, self._context = self._pool, None, None
        if pool is not None:
            pool.clear()


_state = _State()


def init_kvcached(
    tp_rank: int = 0,
    tp_size: int = 1,
    is_worker: bool = False,
    device: str = "cpu",
    async_sched: bool = True,
) -> None:
    """Makes kvcached ready; does nothing if it is. To begin with the limit is OLLAMA_KVCACHED_MEMORY_GB
    (GiB, or with a unit, such as 512MiB), else half of the memory that the system and the control groups of
    this process have available.

    tp_rank, tp_size: 0 and 1; a cache is not spread over processes. is_worker, async_sched: change nothing,
    since every function may be called from any thread.

    Raises ValueError for another device than "cpu", for other tp_rank and tp_size, and if
    OLLAMA_KVCACHED_MEMORY_GB is no size.
    """
    del is_worker, async_sched
    if (tp_rank, tp_size) != (0, 1):
        raise ValueError(
            f"unsupported tp_rank {tp_rank} of tp_size {tp_size}: a cache is not spread over processes"
        )
    _check_supported("device", str(device), _DEVICES)
    _state.init()


def alloc_kv_cache(
    kvcache_shape: Sequence[int | None],
    block_size: int,
    dtype: Any,
    device: str,
    num_layers: int,
    attention_type: str = "MHA",
    kv_layout: str = "NHD",
) -> list[NDArray[Any]]:
    """Reserves addresses for a KV cache. Blocks get memory from alloc_kv_bridge().

    kvcache_shape: (2, num_blocks, num_heads, head_dim), or (2, num_blocks, block_size, num_heads, head_dim);
    num_blocks None or 0: as many as the limit allows. dtype: "float16", "float32", "int8" or "uint8", or what
    has such a name (np.float16, torch.float16).

    Returns an array per layer, [2 (K, V)][num_blocks][block_size][num_heads][head_dim]. They are views of
    memory that lies [num_blocks][num_layers][2][block_size][num_heads][head_dim], so they have strides, of
    which the last three are dense. Arrays outlive shutdown_kvcached(), without their memory. What was never
    allocated reads as zeros.

    Raises ValueError for what is not supported or makes no sense, MemoryError if not even a block fits under
    the limit, RuntimeError without init_kvcached() or if there is a KV cache.
    """
    _check_supported("device", str(device), _DEVICES)
    _check_supported("attention_type", attention_type, _ATTENTION_TYPES)
    _check_supported("kv_layout", kv_layout, _LAYOUTS)
    kind = _parse_dtype(dtype)
    shape = _parse_shape(kvcache_shape, _positive("block_size", block_size))
    half_bytes = shape.block_size * shape.num_heads * shape.head_dim * kind.itemsize
    pool = _state.make_pool(shape.num_blocks, _positive("num_layers", num_layers) * 2 * half_bytes)
    memory = np.asarray(pool)
    row_bytes = shape.head_dim * kind.itemsize
    return [
        np.ndarray(
            (2, pool.num_blocks, shape.block_size, shape.num_heads, shape.head_dim),
            kind,
            memory,
            layer * 2 * half_bytes,
            (half_bytes, pool.block_bytes, shape.num_heads * row_bytes, row_bytes, kind.itemsize),
        )
        for layer in range(num_layers)
    ]


def alloc_kv_bridge(num_blocks: int) -> list[int]:
    """Gives blocks memory, in all layers, and returns their ids: indexes of the arrays' second axis. Contents
    are undefined.

    Raises MemoryError, and allocates none, if the limit, the system or the cache does not have that many;
    ValueError for a negative number; RuntimeError without alloc_kv_cache().
    """
    if num_blocks < 0:
        raise ValueError(f"num_blocks is {num_blocks}")
    return _state.pool.alloc(num_blocks)


def free_kv_bridge(block_ids: Sequence[int] | NDArray[np.int64]) -> int:
    """Takes blocks back, and with the last block of a page its memory. Returns their number.

    Raises ValueError, and frees none, if one is not allocated or comes twice, or if these are not ids;
    RuntimeError without alloc_kv_cache().
    """
    pool = _state.pool
    ids = np.asarray(block_ids)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise ValueError(f"block ids are a list of integers, not {block_ids!r:.100}")
    pool.free(np.ascontiguousarray(ids, np.int64))
    return ids.size


def set_memory_limit(limit_bytes: int) -> bool:
    """In bytes. Returns False if more than that is committed: nothing is revoked, and nothing more is
    committed until enough is freed.

    Raises ValueError for a limit that makes no sense, RuntimeError without init_kvcached().
    """
    return _state.context.set_limit(limit_bytes)


def memory_stats() -> MemoryStats:
    """Raises RuntimeError without init_kvcached()."""
    return _state.stats()


def shutdown_kvcached() -> None:
    """Gives all memory back, and the addresses with the last array. Does nothing before init_kvcached()."""
    _state.shut_down()


def _check_supported(what: str, value: object, supported: Sequence[str]) -> None:
    if value not in supported:
        raise ValueError(f"unsupported {what} {value!r}: only {', '.join(supported)}")


def _positive(what: str, value: int) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{what} is {value!r}, not a positive integer")
    return int(value)


def _parse_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype).removeprefix("torch.")
    _check_supported("dtype", name, _DTYPES)
    kind: np.dtype[Any] = np.dtype(name)
    return kind


def _parse_shape(shape: Sequence[int | None], block_size: int) -> _Shape:
    named = f"kvcache_shape {tuple(shape)}"
    if len(shape) not in (4, 5) or shape[0] != 2:
        raise ValueError(
            f"{named} is neither (2, num_blocks, num_heads, head_dim)"
            " nor (2, num_blocks, block_size, num_heads, head_dim)"
        )
    _, num_blocks, *inner, num_heads, head_dim = shape
    if inner not in ([], [block_size]):
        raise ValueError(f"{named} is not for a block_size of {block_size}")
    return _Shape(
        _positive(f"num_blocks of {named}", num_blocks) if num_blocks else 0,
        block_size,
        _positive(f"num_heads of {named}", num_heads or 0),
        _positive(f"head_dim of {named}", head_dim or 0),
    )
