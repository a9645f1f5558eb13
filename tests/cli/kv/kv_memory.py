"""What GET /api/kv answers."""

from __future__ import annotations

from typing import Any

MIB, GIB = 1 << 20, 1 << 30
NO_TOKENS = {"computed": 0, "in_memory": 0, "on_disk": 0}


def kv_model(name: str, **fields: Any) -> dict[str, Any]:
    """A model without KV memory, but for `fields`."""
    return {
        "name": name,
        "state": "resident",
        "weights": 100 * MIB,
        "reserved": 4 * GIB,
        "committed": 0,
        "used": 0,
        "cached": 0,
        "guaranteed": 0,
        "groups": [],
        "hit_rate": None,
        "prompt_tokens": NO_TOKENS,
        "running": 0,
        "waiting": 0,
    } | fields


def kv_memory(*models: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "kv_limit": GIB,
        "memory_limit": 8 * GIB,
        "committed": sum(model["committed"] for model in models),
        "leased": 0,
        "disk": None,
        "prompt_tokens": NO_TOKENS,
        "since": "2026-01-02T03:04:05Z",
        "models": list(models),
    } | fields
