"""What an engine tells of itself, and whether its books are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from puna.engine.observation.recorder import Recorder
from puna.engine.offload.warm_prefixes import WarmPrefixes
from puna.engine.request import EngineStats, ModelStats
from puna.engine.resident import Asleep, Resident
from puna.engine.scheduling.scheduler import Scheduler
from puna.engine.scheduling.sequence import Sequence
from puna.kv import BlockId, Budget, SequenceTable


def engine_stats(
    models: Mapping[str, Resident],
    asleep: Mapping[str, Asleep],
    scheduler: Scheduler,
    recorder: Recorder,
    budget: Budget,
    prefixes: WarmPrefixes,
) -> EngineStats:
    return EngineStats(
        kv_limit_bytes=budget.kv_limit_bytes,
        memory_limit_bytes=budget.memory_limit_bytes,
        leased_bytes=budget.leased_bytes,
        models=[
            ModelStats(
                model_id=model_id,
                num_running=len(scheduler.lane(model_id).running),
                num_waiting=scheduler.num_waiting(model_id) + prefixes.num_waiting(model_id),
                num_preemptions=recorder.metrics[model_id].num_preemptions,
                block_bytes=model.pool.block_bytes,
                used_kv_bytes=model.pool.num_used * model.pool.block_bytes,
                cached_kv_bytes=model.pool.num_cached * model.pool.block_bytes,
                committed_kv_bytes=model.pool.committed_bytes,
                reserved_kv_bytes=model.pool.reserved_bytes,
                minimum_kv_bytes=budget.minimum_bytes(model.pool),
                weight_bytes=model.device_model.info.weight_bytes,
            )
            for model_id, model in models.items()
        ]
        + [sleeper.stats(model_id) for model_id, sleeper in asleep.items()],
        disk=prefixes.stats(),
        metrics=recorder.metrics,
    )


def check_books(
    models: Mapping[str, Resident],
    sequences: Iterable[Sequence],
    kept: Mapping[str, list[SequenceTable]],
    lent: Mapping[str, list[BlockId]],
    budget: Budget,
) -> None:
    """Asserts that every committed block is accounted for, by its owners and by the budget.

    kept: by model, the tables that belong to no sequence; lent: the blocks that files are made of, or filled
    from.
    """
    for model_id, model in models.items():
        model.pool.check()
        model.cache.check()
        tables = [s.table for s in sequences if s.model_id == model_id] + kept[model_id]
        drafts = [s.draft for s in sequences if s.draft is not None]
        tables += [draft.table for draft in drafts if draft.model is model.draft_model]
        held = Counter(block for table in tables for block in table.blocks)
        held.update(lent[model_id])
        assert held == model.pool.references(), f"{model_id}: references without an owner"
    budget.check()
