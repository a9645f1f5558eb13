"""What all models of an engine take together, and how one gets more of it."""

from __future__ import annotations

import logging

from puna.backends.base import DeviceOutOfMemory, ModelLoadError
from puna.config.memory import available_bytes, default_kv_limit_bytes
from puna.engine.load_errors import ModelDoesNotFit
from puna.engine.resident import Resident
from puna.engine.scheduling.contention import Pins
from puna.engine.scheduling.scheduler import Scheduler
from puna.engine.settings import EngineSettings
from puna.kv import Budget

log = logging.getLogger(__name__)


def new_budget(settings: EngineSettings) -> Budget:
    """With the limits that are set, or what the machine has."""
    kv_limit, memory_limit = settings.kv_limit_bytes, settings.memory_limit_bytes
    return Budget(
        default_kv_limit_bytes() if kv_limit is None else kv_limit,
        available_bytes() if memory_limit is None else memory_limit,
    )


class EngineMemory:
    """The budget, and who makes way when it gets smaller."""

    def __init__(self, settings: EngineSettings, scheduler: Scheduler, pins: Pins) -> None:
        self.budget = new_budget(settings)
        self._is_elastic = settings.elastic
        self._scheduler = scheduler
        self._pins = pins
        self._has_failed = False  # to settle, the last time

    def enter(self, model: Resident) -> None:
        """Counts what a model takes and what KV memory it is sure of; what is cached makes room.

        Raises ModelLoadError, and changes nothing.
        """
        fixed_bytes = model.device_model.info.fixed_bytes
        self._require(model, fixed_bytes)
        self.budget.add_weights(fixed_bytes)
        self.budget.set_minimum(model.pool, model.minimum_kv_bytes)
        if not self._is_elastic:
            try:
                model.pool.make_static()
            except DeviceOutOfMemory as error:
                self.leave(model)
                raise ModelLoadError(str(error)) from error

    def leave(self, model: Resident) -> None:
        """The model takes no memory any more, but for KV that it still holds."""
        self.budget.remove_weights(model.device_model.info.fixed_bytes)
        self.budget.set_minimum(model.pool, 0)

    def set_limits(self, kv_limit_bytes: int | None, memory_limit_bytes: int | None) -> None:
        """None: as before."""
        budget = self.budget
        budget.set_limits(
            budget.kv_limit_bytes if kv_limit_bytes is None else kv_limit_bytes,
            budget.memory_limit_bytes if memory_limit_bytes is None else memory_limit_bytes,
        )

    def settle(self) -> None:
        """Has everybody who can do without memory give it back, as long as there is too little.

        Where that fails no request is to suffer: it is tried again.
        """
        try:
            self._settle()
            self._has_failed = False
        except Exception:
            if not self._has_failed:
                log.exception("memory cannot be given back")
            self._has_failed = True

    def _settle(self) -> None:
        while self._is_elastic and self.budget.debt_bytes:
            self.budget.shrink()
            if not self.budget.debt_bytes or not self._scheduler.give_way():
                break

    @property
    def leasable_bytes(self) -> int:
        """What could be leased now."""
        return max(self.budget.available_bytes(None), 0)

    @property
    def reclaimable_bytes(self) -> int:
        """Spare and cached."""
        return self.budget.reclaimable_bytes

    def relieve(self) -> None:
        """Gives back what is spare, and half of what is cached: the system is short of memory."""
        self.budget.evict_older_half()
        self.budget.trim()

    def _require(self, model: Resident, fixed_bytes: int) -> None:
        """Raises ModelDoesNotFit. What is pinned goes if that helps."""
        arguments = model.pool, fixed_bytes, model.minimum_kv_bytes
        while (shortage := self.budget.shortage(*arguments)) is not None:
            missing = shortage.needed_bytes + shortage.taken_bytes - shortage.limit_bytes
            if shortage.is_of_kv or missing > self._pins.pinned_bytes or not self._pins.unpin_oldest():
                raise ModelDoesNotFit(shortage)
