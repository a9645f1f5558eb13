"""A loaded model and what belongs to it in an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from puna.backends.base import BLOCK_TOKENS, BlockMemory, DeviceModel, KvReservation, ModelInfo
from puna.engine.caching.cache_policy import CachePolicy, PrefixPolicy
from puna.engine.caching.slot_policy import SlotPolicy
from puna.engine.offload.sessions import ModelKv
from puna.engine.request import ModelStats
from puna.engine.scheduling.step_costs import StepCosts
from puna.engine.settings import DEFAULT_SLOTS, EngineSettings
from puna.engine.speculation.draft_model import DraftModel
from puna.kv import BlockPool, Budget, MoveKv, PrefixCache
from puna.kv.blocks import blocks_for
from puna.kv.identity import KvIdentity
from puna.kv.input_cache import InputCache


@dataclass(frozen=True, slots=True)
class Resident:
    """A loaded model, its KV memory, and who finds what is in there."""

    device_model: DeviceModel
    memory: BlockMemory
    pool: BlockPool
    cache: PrefixCache
    policy: CachePolicy
    costs: StepCosts
    draft_model: DraftModel
    minimum_kv_bytes: int
    """KV memory that it is sure of while it is awake."""

    def kv(self, model_id: str) -> ModelKv:
        """For those who keep it."""
        info = self.device_model.info
        identity = KvIdentity(model_id=model_id, kv_type=info.kv_type, groups=info.groups)
        return ModelKv(identity, self.memory, self.pool, self.cache)

    @classmethod
    def reserve(
        cls,
        device_model: DeviceModel,
        budget: Budget,
        settings: EngineSettings,
        clock: Callable[[], float],
        minimum_kv_bytes: int,
    ) -> Resident:
        """Reserves KV memory on the device. Raises ModelLoadError."""
        room_bytes = budget.most_bytes(None) - budget.leased_bytes - device_model.info.fixed_bytes
        memory = _reserve(device_model, budget, settings, room_bytes)
        return cls._on(memory, device_model, budget, settings, clock, minimum_kv_bytes, StepCosts())

    def refitted(self, budget: Budget, settings: EngineSettings, clock: Callable[[], float]) -> Resident:
        """The same model with KV memory of its own, in extents that suit what it could have now. Raises
        ModelLoadError.
        """
        model, minimum = self.device_model, self.minimum_kv_bytes
        memory = _reserve(model, budget, settings, self.pool.most_bytes)
        return self._on(memory, model, budget, settings, clock, minimum, self.costs)

    @classmethod
    def _on(
        cls,
        memory: BlockMemory,
        device_model: DeviceModel,
        budget: Budget,
        settings: EngineSettings,
        clock: Callable[[], float],
        minimum_kv_bytes: int,
        costs: StepCosts,
    ) -> Resident:
        pool = BlockPool(memory, budget)
        cache = PrefixCache(pool)
        return cls(
            device_model,
            memory,
            pool,
            cache,
            _policy(device_model.info, settings, pool, cache, memory.move),
            costs,
            DraftModel(device_model, memory, pool, costs, clock),
            minimum_kv_bytes if settings.elastic else pool.reserved_bytes,
        )


class Asleep(NamedTuple):
    """What is left of a model that sleeps, and with what it will wake."""

    device_model: DeviceModel
    weight: float
    minimum_kv_bytes: int

    def stats(self, model_id: str) -> ModelStats:
        info = self.device_model.info
        return ModelStats(
            model_id=model_id,
            num_running=0,
            num_waiting=0,
            num_preemptions=0,
            block_bytes=info.block_bytes,
            used_kv_bytes=0,
            cached_kv_bytes=0,
            committed_kv_bytes=0,
            weight_bytes=info.weight_bytes,
            minimum_kv_bytes=self.minimum_kv_bytes,
            is_asleep=True,
        )


def _reserve(
    device_model: DeviceModel, budget: Budget, settings: EngineSettings, room_bytes: int
) -> BlockMemory:
    """room_bytes: what the model could have now."""
    static_tokens = None if settings.elastic else _static_tokens(device_model.info, settings)
    (memory,) = device_model.reserve(KvReservation(budget.limit_bytes, room_bytes, static_tokens))
    return memory


def _static_tokens(info: ModelInfo, settings: EngineSettings) -> int:
    context = min(settings.static_context or info.context_length, info.context_length)
    return (settings.num_places or DEFAULT_SLOTS) * blocks_for(context) * BLOCK_TOKENS


def _policy(
    info: ModelInfo, settings: EngineSettings, pool: BlockPool, cache: PrefixCache, move: MoveKv
) -> CachePolicy:
    if settings.cache_policy == "prefix":
        return PrefixPolicy(pool, cache, move)
    num_slots = settings.num_places
    assert num_slots is not None, "slots always have a number"
    slots = InputCache(
        pool,
        move,
        kv_size=num_slots * info.context_length,
        num_slots=num_slots,
        multi_user=settings.multi_user_cache,
        can_shift=info.can_shift,
    )
    return SlotPolicy(pool, slots, move)
