"""The worker's side of memory: limits, leases, and giving it back when the system is short of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from puna.engine import EngineCore
from puna.kv.pressure import MemoryPressure
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

LOOK_S = 1.0
"""So often it is looked whether the system is short of memory."""


class MemoryService:
    """For the engine's thread. send: answers the daemon."""

    def __init__(
        self, engine: EngineCore, send: Callable[[FromWorker], None], pressure: MemoryPressure
    ) -> None:
        self._engine = engine
        self._send = send
        self._pressure = pressure
        self._look_s: float | None = None  # when to look next; None: nothing could be given back

    def handle(self, message: MemoryMessage) -> None:
        match message:
            case SetLimits(call, kv_limit_bytes, memory_limit_bytes):
                self._send(LimitsSet(call, self._engine.set_limits(kv_limit_bytes, memory_limit_bytes)))
            case Lease(call, num_bytes, is_held):
                granted = self._engine.lease(num_bytes, is_held=is_held)
                self._send(Leased(call, granted, self._engine.memory.leasable_bytes))
            case EndLease(call, num_bytes):
                self._engine.end_lease(num_bytes)
                self._send(LeaseEnded(call))
            case TrimKv(call):
                self._send(Trimmed(call, self._engine.trim_kv()))

    def relieve_system(self) -> float | None:
        """Gives cached KV back while the system is short of memory. To be called again after so many seconds;
        None: there is nothing to give.
        """
        now_s = time.monotonic()
        if self._look_s is not None and now_s < self._look_s:
            return self._look_s - now_s
        if not self._pressure.is_known or not self._engine.memory.reclaimable_bytes:
            self._look_s = None
            return None
        is_watched, is_high = self._look_s is not None, self._pressure.is_high()
        if is_watched and is_high:
            log.info("the system is short of memory: cached KV makes room")
            self._engine.memory.relieve()
        self._look_s = now_s + LOOK_S
        return LOOK_S
