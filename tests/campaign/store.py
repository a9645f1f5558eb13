"""A store of tiny models, each with weights of its own."""

from __future__ import annotations

from pathlib import Path

from puna.registry import ModelName, Store
from puna.registry.creation.from_gguf import create_from_gguf
from tests.campaign.clients.asks import MODELS
from tests.descriptions import TINY_WEIGHTS
from tests.tiny import TINY, Tiny, write_tiny

LARGE_KV = Tiny("llama", layers=8, heads=8, kv_heads=8, head_dim=64, width=64)
"""16 KiB of KV for each token, of few weights."""


def make_store(root: Path, directory: Path, large_kv: bool = False) -> Path:
    """Models of different architectures; large_kv: those whose KV is far larger than their weights."""
    kinds = [LARGE_KV] * len(MODELS) if large_kv else [TINY[name] for name in ("llama", "qwen2", "qwen3")]
    store = Store(root)
    for seed, (name, tiny) in enumerate(zip(MODELS, kinds, strict=True)):
        path = write_tiny(directory / f"{name}.gguf", tiny, seed=seed)
        digest = store.add_blob([path.read_bytes()])
        create_from_gguf(store, ModelName.parse(name), digest, TINY_WEIGHTS)
        path.unlink()
    return root
