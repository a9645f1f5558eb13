"""Settings of an engine."""

from __future__ import annotations

from typing import Literal

import msgspec

DEFAULT_SLOTS = 4
"""With the slots policy, where no number is set."""

CachePolicy = Literal["prefix", "slots"]


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one engine."""

    kv_limit_bytes: int | None = None
    """For the KV of all models together; None: a share of the memory that is available at the start."""
    memory_limit_bytes: int | None = None
    """For weights and KV of all models together; None: what is available at the start."""
    elastic: bool = True
    """False: each model commits the KV memory of num_places contexts when it is loaded, and keeps it."""
    static_context: int | None = None
    """Tokens of such a context; None: the model's own limit."""
    kv_idle_s: float = 3.0
    """A model's cached prefixes leave memory when it has computed nothing for so long."""
    kv_dir: str | None = None
    """Directory where prefixes outlive their model; None: they don't."""
    kv_disk_bytes: int | None = None
    """Most that they may take there; None: a share of what is free."""
    kv_bytes_per_day: int = 64 << 30
    """Most that is written there in a day."""
    write_behind: bool = True
    """Prefixes are written there as they are computed; else only those of idle models."""
    sessions_dir: str | None = None
    """Directory where sessions are saved; None: they are not."""
    state_key: bytes | None = None
    """With which all that is on disk is authenticated, KEY_BYTES; None: nothing is kept there."""
    cache_policy: CachePolicy = "prefix"
    """prefix: whatever was computed is found by content. slots: as Ollama's runner does it, each sequence
    in a slot, which keeps what its last sequence left."""
    multi_user_cache: bool = False
    """With slots: rather keep what they hold, and copy common beginnings, than continue the best match."""
    max_running: int | None = None
    """Sequences of one model that run at once, further ones wait; None: as many as there is memory for."""
    max_queue: int | None = None
    """Requests that may wait; further ones are refused as "busy". None: any number."""
    max_batch: int = 256
    """Sequences of one step; if more are running, they take turns. Bounds a step's logits."""
    prefill_tokens: int = 256
    """Prompt tokens computed in one step. More gains little speed and delays arrivals and cancels."""
    most_text_tokens: int = 2048
    """The same of an encoder's texts, where the step then takes no longer than text_step_s."""
    text_step_s: float = 0.025
    min_prefill_tokens: int = 8
    """Fewest prompt tokens of a step, however many streams wait for it: prompts must get on, too."""
    max_slowdown: float = 1.8
    """While sequences stream, prompt tokens may make their steps so many times as long; more, in proportion,
    for each prompt beside each stream."""
    unnoticed_s: float = 0.008
    """A step that takes no longer may have been slowed down by more: nobody reads that fast."""

    @property
    def num_places(self) -> int | None:
        """max_running; slots always have a number."""
        if self.max_running is None and self.cache_policy == "slots":
            return DEFAULT_SLOTS
        return self.max_running
