"""Elastic memory for the KV caches of other engines, under one limit: Python's face of libkvcached."""

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
from puna.kvcached.paths import include_dir, library_path, pkgconfig_dir, proto_path

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
