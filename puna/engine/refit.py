"""Models whose extents have become too coarse, because limits were lowered, get others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from puna.backends.base import ModelLoadError
from puna.engine.caching.slot_policy import IdleSlots, SlotPolicy
from puna.engine.offload.sessions import Sessions
from puna.engine.offload.warm_prefixes import WarmPrefixes
from puna.engine.resident import Resident
from puna.engine.scheduling.scheduler import Scheduler
from puna.engine.scheduling.sequence import Sequence
from puna.engine.settings import EngineSettings
from puna.kv import Budget, SequenceTable


@dataclass(frozen=True, slots=True)
class Refitting:
    """Reserves KV memory anew for models that have none in use. For the engine's thread, between steps."""

    settings: EngineSettings
    clock: Callable[[], float]
    budget: Budget
    scheduler: Scheduler
    sessions: Sessions
    slots: IdleSlots
    prefixes: WarmPrefixes

    def refit_all(self, models: dict[str, Resident], sequences: Iterable[Sequence]) -> None:
        """models: replaced where they get other memory; sequences: all of the engine's."""
        for model_id, model in list(models.items()):
            if model.pool.is_too_coarse and self._is_free(model_id, model):
                models[model_id] = self._refit(model_id, model, sequences)

    def _is_free(self, model_id: str, model: Resident) -> bool:
        if self.scheduler.lane(model_id).running or self.prefixes.is_reading(model_id):
            return False
        self.slots.empty(model_id)
        return model.pool.num_used == 0

    def _refit(self, model_id: str, old: Resident, sequences: Iterable[Sequence]) -> Resident:
        try:
            new = old.refitted(self.budget, self.settings, self.clock)
        except ModelLoadError:
            old.pool.keep_extents()
            return old
        for sequence in sequences:
            if sequence.model_id == model_id:  # it waits
                sequence.table = SequenceTable(new.pool)
            if sequence.draft is not None and sequence.draft.model is old.draft_model:
                sequence.draft = new.draft_model.new_state()
        lane = self.scheduler.lane(model_id)
        lane.pool, lane.policy = new.pool, new.policy
        if isinstance(new.policy, SlotPolicy):
            self.slots.add_model(model_id, new.policy)
        kv = new.kv(model_id)
        self.sessions.add_model(model_id, kv, new.device_model.info.kernels)
        self.budget.set_minimum(old.pool, 0)
        self.budget.set_minimum(new.pool, new.minimum_kv_bytes)
        self.prefixes.refit_model(model_id, kv)
        return new
