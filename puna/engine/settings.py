"""What can be set about an engine."""

from __future__ import annotations

from typing import Literal

import msgspec

CachePolicy = Literal["prefix", "slots"]


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one engine."""

    kv_limit_bytes: int | None = None
    """For the KV of all models together; None: a share of the memory that is available at the start."""
    kv_idle_s: float = 300.0
    """Cached prefixes are dropped when nothing has been computed for so long."""
    cache_policy: CachePolicy = "prefix"
    """prefix: whatever was computed is found by content. slots: as Ollama's runner does it, each sequence
    in one of `max_running` slots, which keep what their last sequence left."""
    max_running: int | None = None
    """Sequences of one model that run at once, further ones wait; None: as many as there is memory for."""
    max_queue: int | None = None
    """Requests that may wait; further ones are refused as "busy". None: any number."""
    max_batch: int = 256
    """Sequences of one step; if more are running, they take turns. Bounds a step's logits."""
    prefill_tokens: int = 256
    """Prompt tokens computed in one step. More gains little speed and delays whoever arrives or cancels."""
    min_prefill_tokens: int = 16
    """Fewest prompt tokens of a step, whoever waits for it: prompts must get on, too."""
    max_slowdown: float = 2.0
    """While sequences stream, prompt tokens may make their steps so many times as long."""
    unnoticed_s: float = 0.008
    """A step that takes no longer may have been slowed down by more: nobody reads that fast."""
