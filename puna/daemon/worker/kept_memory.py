"""What was agreed on memory, which outlives the worker that was told of it."""

from __future__ import annotations

from puna.worker.calls import Caller
from puna.worker.engine.messages import Lease, Ready, SetLimits


class KeptMemory:
    """Limits that were set, or that the first worker found, and what others have leased."""

    def __init__(self) -> None:
        self.leased_bytes = 0
        self._kv_limit_bytes: int | None = None
        self._memory_limit_bytes: int | None = None

    def set_limits(self, kv_limit_bytes: int | None, memory_limit_bytes: int | None) -> None:
        """None: as before."""
        if kv_limit_bytes is not None:
            self._kv_limit_bytes = kv_limit_bytes
        if memory_limit_bytes is not None:
            self._memory_limit_bytes = memory_limit_bytes

    async def restore(self, client: Caller, ready: Ready) -> None:
        """Tells a new worker, which has no models yet. Raises WorkerDied."""
        if self.leased_bytes:
            # First, and sent before anything else can be: who ends a lease now tells this worker, too.
            await client.call(Lease(self.leased_bytes, is_held=True))
        if (self._kv_limit_bytes, self._memory_limit_bytes) != (None, None):
            await client.call(SetLimits(self._kv_limit_bytes, self._memory_limit_bytes))
        # What the first worker finds holds for later ones: they may find less, because of what is leased.
        if self._kv_limit_bytes is None:
            self._kv_limit_bytes = ready.kv_limit_bytes
        if self._memory_limit_bytes is None:
            self._memory_limit_bytes = ready.memory_limit_bytes
