"""How models come by their memory, and leave it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from puna.backends.base import KvReservation, ModelLoadError
from puna.engine.memory.engine_memory import EngineMemory
from puna.engine.memory.ladder import IdleSlots, Rung
from puna.engine.memory.offers import Level
from puna.engine.model import Model
from puna.engine.offload.sessions import Sessions
from puna.engine.offload.warm_prefixes import WarmPrefixes
from puna.engine.settings import DEFAULT_SLOTS, EngineSettings
from puna.kv import BLOCK_TOKENS
from puna.kv.blocks import blocks_for
from puna.kv.files.identity import KvIdentity
from puna.kv.model_kv import ModelKv

# States of recurrent layers for each place: two of a sequence that steps, the others snapshots.
_STATIC_STATES = {"prefix": 4, "slots": 2}


class Residents:
    """Has models wake and sleep, and keeps what outlives their KV memory."""

    def __init__(
        self,
        settings: EngineSettings,
        clock: Callable[[], float],
        models: Mapping[str, Model],
        end_requests: Callable[[Model], None],
    ) -> None:
        """models: by id, those asleep included. end_requests: of a model that falls asleep."""
        self.prefixes = WarmPrefixes(settings, clock)
        self.sessions = Sessions(settings, clock, self.prefixes.models)
        pins: list[tuple[Level, Rung]] = [
            (Level.TRANSFERS, self.prefixes),
            (Level.SESSIONS, self.sessions),
            (Level.SLOTS, IdleSlots(models)),
        ]
        self.memory = EngineMemory(settings, models, pins, self.sleep, clock)
        self._settings = settings
        self._clock = clock
        self._models = models
        self._end_requests = end_requests

    def awake(self) -> list[Model]:
        return [model for model in self._models.values() if model.is_awake]

    def wake(self, model: Model) -> None:
        """Of a model that is asleep, or new. Raises ModelLoadError; ModelDoesNotFit where its weights, or
        what is guaranteed to it, are too much beside what others cannot do without.
        """
        budget, info = self.memory.budget, model.device.info
        room = budget.most_bytes(None) - budget.leased_bytes
        room -= model.adapter_bytes
        fits = info.fixed_bytes < room
        kv = self._reserve(model, room - (info.fixed_bytes if fits else info.least_fixed_bytes))
        try:
            self.memory.enter(model, kv)
        except ModelLoadError:
            kv.close()
            raise
        model.use_kv(kv, self._settings)
        identity = KvIdentity(model_id=model.id, kv_type=info.kv_type, groups=info.groups)
        model.offload = self.prefixes.attach(identity, info.kernels, kv, model.policy, model.costs)
        model.last_used_s = self._clock()

    def sleep(self, model: Model) -> None:
        """Its requests finish with an error; it keeps only what makes the next wake() quick."""
        self.leave(model)
        model.device.sleep()

    def leave(self, model: Model) -> None:
        """Takes all memory of a model that is awake; what is cached goes to disk."""
        self._end_requests(model)
        self.sessions.forget_model(model.offload)
        model.policy.empty_idle()
        self.memory.leave(model, model.kv)
        model.use_kv(None, self._settings)
        self.prefixes.detach(model.offload)

    def refit(self) -> None:
        """Gives models whose extents have become too coarse, since limits were lowered, others, as soon as
        nothing of their KV is in use.
        """
        for model in self._models.values():
            if model.running or not model.is_awake or model.offload.restores or not model.kv.is_too_coarse:
                continue
            model.policy.empty_idle()
            if model.kv.used_bytes == 0:
                self._refit(model)

    def _refit(self, model: Model) -> None:
        budget, old = self.memory.budget, model.kv
        try:
            new = self._reserve(model, budget.most_bytes(old) - budget.leased_bytes)
        except ModelLoadError:
            old.keep_extents()
            return
        if new.is_too_coarse:  # the device has no finer ones
            new.keep_extents()
        for sequence in model.offload.active:  # those that waited for a disk, too
            sequence.table = new.new_table(keeps_all=sequence.table.keeps_all)
        budget.set_guarantee(old, 0)
        budget.set_guarantee(new, model.guaranteed_bytes)
        model.use_kv(new, self._settings)
        model.offload = self.prefixes.move(model.offload, new, model.policy)

    def _reserve(self, model: Model, room_bytes: int) -> ModelKv:
        """room_bytes: what the model could have now. Raises ModelLoadError."""
        info, settings = model.device.info, self._settings
        context = min(settings.static_context or info.context_length, info.context_length)
        num_places = settings.num_places or DEFAULT_SLOTS
        static_tokens = num_places * blocks_for(context) * BLOCK_TOKENS
        reservation = KvReservation(
            limit_bytes=self.memory.budget.limit_bytes,
            room_bytes=room_bytes,
            static_tokens=None if settings.elastic else static_tokens,
            static_states=_STATIC_STATES[settings.cache_policy] * num_places,
        )
        return ModelKv(info.groups, model.device.reserve(reservation), self.memory.budget)
