"""A loaded model and what belongs to it in an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from puna._native import Arena, NativeError
from puna.backends.base import DeviceModel, ModelInfo, ModelLoadError
from puna.engine.cache_policy import CachePolicy, PrefixPolicy
from puna.engine.draft_model import DraftModel
from puna.engine.request import ModelStats
from puna.engine.settings import EngineSettings
from puna.engine.slot_policy import SlotPolicy
from puna.engine.step_costs import StepCosts
from puna.kv import BlockPool, Budget, MoveKv, PrefixCache
from puna.kv.budget import Shortage
from puna.kv.extents import plan_extent
from puna.kv.input_cache import InputCache

_MAX_BLOCKS = 2**31 - 1  # block ids are int32


class ModelDoesNotFit(ModelLoadError):
    """Too little memory, though others have given what they can do without."""

    def __init__(self, shortage: Shortage, text: str = "the model does not fit into memory") -> None:
        super().__init__(text)
        self.shortage = shortage


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

    @classmethod
    def reserve(
        cls,
        device_model: DeviceModel,
        budget: Budget,
        settings: EngineSettings,
        clock: Callable[[], float],
    ) -> Resident:
        """Reserves address space for as much KV as the budget allows. Raises ModelLoadError."""
        arena = _reserve(device_model.info, budget.limit_bytes)
        pool = BlockPool(arena, budget)
        cache = PrefixCache(pool)
        costs = StepCosts()
        return cls(
            device_model,
            arena,
            pool,
            cache,
            _policy(device_model.info, settings, pool, cache, partial(device_model.move_kv, arena)),
            costs,
            DraftModel(device_model, arena, pool, costs, clock),
        )


@dataclass(frozen=True, slots=True)
class Asleep:
    """What is left of a model that sleeps."""

    device_model: DeviceModel
    weight: float

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
            is_asleep=True,
        )


def _reserve(info: ModelInfo, limit_bytes: int) -> Arena:
    extent = plan_extent(info.block_bytes, limit_bytes)
    num_blocks = min(limit_bytes // extent.num_bytes * extent.num_blocks, _MAX_BLOCKS)
    if num_blocks == 0:
        raise ModelLoadError(
            f"one block of KV memory takes {info.block_bytes} bytes, the limit is {limit_bytes}"
        )
    try:
        return Arena(num_blocks, info.block_bytes, extent.num_blocks, extent.num_bytes)
    except NativeError as error:
        raise ModelLoadError(str(error)) from error


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
