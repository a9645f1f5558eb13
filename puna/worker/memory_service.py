"""The worker's side of memory: limits, leases, and what can be given back."""

from __future__ import annotations

import logging
from collections.abc import Callable

from puna.engine import EngineCore
from puna.worker.protocol import (
    EndLease,
    FromWorker,
    Lease,
    Leased,
    LeaseEnded,
    LimitsSet,
    MemoryMessage,
    SetLimits,
    TrimKv,
    Trimmed,
)

log = logging.getLogger(__name__)


class MemoryService:
    """For the engine's thread. send: answers the daemon."""

    def __init__(self, engine: EngineCore, send: Callable[[FromWorker], None]) -> None:
        self._engine = engine
        self._send = send

    def handle(self, message: MemoryMessage) -> None:
        match message:
            case SetLimits(call, kv_limit_bytes, memory_limit_bytes):
                self._send(LimitsSet(call, self._set_limits(kv_limit_bytes, memory_limit_bytes)))
            case Lease(call, num_bytes, is_held):
                granted = self._engine.lease(num_bytes, is_held=is_held)
                self._send(Leased(call, granted, self._engine.memory.leasable_bytes))
            case EndLease(call, num_bytes):
                self._engine.end_lease(num_bytes)
                self._send(LeaseEnded(call))
            case TrimKv(call):
                self._send(Trimmed(call, self._engine.trim_kv()))

    def _set_limits(self, kv_limit_bytes: int | None, memory_limit_bytes: int | None) -> int:
        excess = self._engine.set_limits(kv_limit_bytes, memory_limit_bytes)
        if excess:
            log.warning("%d bytes in use are above the new limits; they go as requests finish", excess)
        return excess
