"""Gives cached KV back when the system is short of memory."""

from __future__ import annotations

import logging
import time

from puna.engine import EngineCore
from puna.kv.pressure import MemoryPressure

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""So often it is looked whether the system is short of memory."""


class PressureRelief:
    """For the engine's thread."""

    def __init__(self, engine: EngineCore, pressure: MemoryPressure) -> None:
        self._engine = engine
        self._pressure = pressure
        self._look_s: float | None = None  # when to look next; None: nothing could be given back

    def relieve_system(self) -> float | None:
        """Gives cached KV back while the system is short of memory. To be called again after so many seconds;
        None: there is nothing to give.
        """
        now_s = time.monotonic()
        if self._look_s is not None and now_s < self._look_s:
            return self._look_s - now_s
        memory = self._engine.memory
        if not self._pressure.is_known or not memory.reclaimable_bytes or memory.is_overcommitted:
            self._look_s = None
            return None
        is_watched, is_high = self._look_s is not None, self._pressure.is_high()
        if is_watched and is_high:
            log.info("the system is short of memory: cached KV makes room")
            memory.relieve()
        self._look_s = now_s + LOOK_S
        return LOOK_S
