"""What can be set about an engine."""

from __future__ import annotations

import msgspec


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one engine."""

    kv_limit_bytes: int | None = None
    """For the KV of all models together; None: a share of the memory that is available at the start."""
    max_running: int = 128
    """Sequences of one model computed together; further ones wait. Bounds a step's logits and duration."""
    prefill_tokens: int = 256
    """Prompt tokens computed in one step. More gains little speed and delays whoever arrives or cancels."""
    busy_prefill_tokens: int = 64
    """The same while other sequences are streaming: they wait for this many tokens between two of theirs."""
