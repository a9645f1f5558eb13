"""Statistics of an engine, and a check of its books."""

from __future__ import annotations

from collections.abc import Iterable

from puna.engine.model import Model
from puna.engine.observation.recorder import Recorder
from puna.engine.observation.stats import EngineStats
from puna.engine.offload.warm_prefixes import WarmPrefixes
from puna.engine.sequences.sequence import Sequence
from puna.kv import Budget


def engine_stats(
    models: Iterable[Model], recorder: Recorder, budget: Budget, prefixes: WarmPrefixes
) -> EngineStats:
    return EngineStats(
        kv_limit_bytes=budget.kv_limit_bytes,
        memory_limit_bytes=budget.memory_limit_bytes,
        leased_bytes=budget.leased_bytes,
        models=[model.stats(recorder.metrics[model.id].num_preemptions) for model in models],
        disk=prefixes.stats(),
        since=recorder.since,
        metrics=recorder.metrics,
    )


def check_books(
    models: Iterable[Model],
    sequences: Iterable[Sequence],
    budget: Budget,
) -> None:
    """Asserts that every committed block is accounted for, by its owners and by the budget.

    models: those awake.
    """
    for model in models:
        model.kv.check()
        tables = [s.table for s in sequences if s.model_id == model.id] + model.policy.idle_tables()
        drafts = [s.draft for s in sequences if s.draft is not None]
        tables += [draft.table for draft in drafts if draft.drafter is model.drafter]
        held = model.offload.held
        for index, group in enumerate(model.kv.groups):
            held.update((index, block) for table in tables for block in table.blocks(index))
            owners = {block: count for (of, block), count in held.items() if of == index}
            assert owners == group.pool.references(), f"{model.id}: references without an owner"
    budget.check()
