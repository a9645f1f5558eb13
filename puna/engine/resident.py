"""A loaded model and what belongs to it in an engine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from puna._native import Arena, NativeError
from puna.backends.base import DeviceModel, ModelInfo, ModelLoadError
from puna.engine.caching.cache_policy import CachePolicy, PrefixPolicy
from puna.engine.caching.slot_policy import SlotPolicy
from puna.engine.offload.sessions import ModelKv
from puna.engine.request import ModelStats
from puna.engine.scheduling.step_costs import StepCosts
from puna.engine.settings import DEFAULT_SLOTS, EngineSettings
from puna.engine.speculation.draft_model import DraftModel
from puna.kv import BlockPool, Budget, MoveKv, PrefixCache
from puna.kv.blocks import blocks_for
from puna.kv.checkpoint import KvIdentity
from puna.kv.extents import Extent, plan_extent
from puna.kv.input_cache import InputCache
from puna.kv.memory import total_bytes

_MAX_BLOCKS = 2**31 - 1  # block ids are int32


@dataclass(frozen=True, slots=True)
class Resident:
    """A loaded model, its KV memory, and who finds what is in there."""

    device_model: DeviceModel
    arena: Arena
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
        identity = KvIdentity(
            model_id=model_id, kv_type=info.kv_type, num_layers=info.num_layers, block_bytes=info.block_bytes
        )
        return ModelKv(identity, self.arena, self.pool, self.cache)

    @classmethod
    def reserve(
        cls,
        device_model: DeviceModel,
        budget: Budget,
        settings: EngineSettings,
        clock: Callable[[], float],
        minimum_kv_bytes: int,
    ) -> Resident:
        """Reserves address space for as much KV as there might ever be. Raises ModelLoadError."""
        room_bytes = budget.most_bytes(None) - budget.leased_bytes - device_model.info.fixed_bytes
        arena = _reserve(device_model.info, budget, settings, room_bytes)
        return cls._on(arena, device_model, budget, settings, clock, minimum_kv_bytes, StepCosts())

    def refitted(self, budget: Budget, settings: EngineSettings, clock: Callable[[], float]) -> Resident:
        """The same model with KV memory of its own, in extents that suit what it could have now. Raises
        ModelLoadError.
        """
        model, minimum = self.device_model, self.minimum_kv_bytes
        arena = _reserve(model.info, budget, settings, self.pool.most_bytes)
        return self._on(arena, model, budget, settings, clock, minimum, self.costs)

    @classmethod
    def _on(
        cls,
        arena: Arena,
        device_model: DeviceModel,
        budget: Budget,
        settings: EngineSettings,
        clock: Callable[[], float],
        minimum_kv_bytes: int,
        costs: StepCosts,
    ) -> Resident:
        pool = BlockPool(arena, budget)
        cache = PrefixCache(pool)
        return cls(
            device_model,
            arena,
            pool,
            cache,
            _policy(device_model.info, settings, pool, cache, partial(device_model.move_kv, arena)),
            costs,
            DraftModel(device_model, arena, pool, costs, clock),
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


def _reserve(info: ModelInfo, budget: Budget, settings: EngineSettings, room_bytes: int) -> Arena:
    """room_bytes: what the model could have now."""
    extent = plan_extent(info.block_bytes, room_bytes)
    if settings.elastic:
        # Limits may be raised later. Where address space is limited, too, they cannot be.
        sizes = [max(total_bytes(), budget.limit_bytes), max(budget.limit_bytes, extent.num_bytes)]
        counts = [size // extent.num_bytes * extent.num_blocks for size in sizes]
    else:
        counts = [_static_blocks(info, settings)]
    try:
        return _first_arena(info, extent, counts)
    except NativeError as error:
        raise ModelLoadError(str(error)) from error


def _first_arena(info: ModelInfo, extent: Extent, counts: list[int]) -> Arena:
    """The first that the system grants. Raises NativeError."""
    for num_blocks in counts[:-1]:
        with suppress(NativeError):
            return _arena(info, extent, num_blocks)
    return _arena(info, extent, counts[-1])


def _arena(info: ModelInfo, extent: Extent, num_blocks: int) -> Arena:
    return Arena(min(num_blocks, _MAX_BLOCKS), info.block_bytes, extent.num_blocks, extent.num_bytes)


def _static_blocks(info: ModelInfo, settings: EngineSettings) -> int:
    context = min(settings.static_context or info.context_length, info.context_length)
    return (settings.num_places or DEFAULT_SLOTS) * blocks_for(context)


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
