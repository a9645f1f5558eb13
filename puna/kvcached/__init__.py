"""Elastic memory for the KV caches of other engines, under one limit: Python's face of libkvcached."""

from typing import TYPE_CHECKING

from puna import lazy
from puna.kvcached.paths import include_dir, library_path, pkgconfig_dir, proto_path

if TYPE_CHECKING:
    from puna.kvcached.interfaces import (
        MemoryStats,
        alloc_kv_bridge,
        alloc_kv_cache,
        free_kv_bridge,
        init_kvcached,
        memory_stats,
        set_memory_limit,
        shutdown_kvcached,
    )

__all__ = [
    "MemoryStats",
    "alloc_kv_bridge",
    "alloc_kv_cache",
    "free_kv_bridge",
    "include_dir",
    "init_kvcached",
    "library_path",
    "memory_stats",
    "pkgconfig_dir",
    "proto_path",
    "set_memory_limit",
    "shutdown_kvcached",
]

__getattr__ = lazy.names(
    __name__,
    {
        "MemoryStats": "puna.kvcached.interfaces",
        "alloc_kv_bridge": "puna.kvcached.interfaces",
        "alloc_kv_cache": "puna.kvcached.interfaces",
        "free_kv_bridge": "puna.kvcached.interfaces",
        "init_kvcached": "puna.kvcached.interfaces",
        "memory_stats": "puna.kvcached.interfaces",
        "set_memory_limit": "puna.kvcached.interfaces",
        "shutdown_kvcached": "puna.kvcached.interfaces",
    },
)
