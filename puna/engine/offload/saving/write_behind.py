"""Write-behind: what is computed gets its files while the machine is busy, before it is evicted or lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from puna._native import UnsavedNodes
from puna.engine.offload.model_offload import ModelOffload
from puna.engine.offload.prefix_restores import MIN_BLOCKS
from puna.engine.offload.saving.node_files import NodeFiles
from puna.engine.offload.saving.prefix_saves import PrefixSaves
from puna.engine.offload.saving.save_sources import FreshNodes
from puna.kv import BLOCK_TOKENS
from puna.kv.files.block_files import BlockFiles
from puna.kv.files.prefix_store import PrefixStore

_FEW = 16
"""Fewer nodes than a chunk of a prompt makes wait for more, but not for long."""
_WAIT_S = 0.03


@dataclass(slots=True)
class _Fresh:
    """Of one model."""

    unsaved: UnsavedNodes
    names: NodeFiles
    since_s: float | None = None
    """When it was seen first that there are some."""
    last_written: int = 0


class WriteBehind:
    """Writes what is new of every model, by turns, where computing it again would take longer, and until the
    day's bytes are used up. For the engine's thread.
    """

    def __init__(self, store: PrefixStore, saves: PrefixSaves, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._store = store
        self._saves = saves
        self._clock = clock
        self._models: dict[ModelOffload, _Fresh] = {}
        self._num_batches = 0

    def attach(self, model: ModelOffload, files: BlockFiles) -> None:
        """From now on."""
        self._models[model] = _Fresh(UnsavedNodes(model.kv.tree, MIN_BLOCKS), NodeFiles(files))

    def detach(self, model: ModelOffload) -> None:
        self._models.pop(model, None)

    def forget(self) -> None:
        """What is new waits for something newer that builds on it: the list does not grow for ever."""
        for fresh in self._models.values():
            fresh.unsaved.forget()
            fresh.since_s = None

    def tend(self) -> float | None:
        """Begins to write, if it is time; seconds until it may be, None: there is nothing."""
        waits_s = [self._wait_s(model, fresh) for model, fresh in self._by_turns()]
        return min((wait_s for wait_s in waits_s if wait_s is not None), default=None)

    def _by_turns(self) -> Iterable[tuple[ModelOffload, _Fresh]]:
        return sorted(self._models.items(), key=lambda item: item[1].last_written)

    def _wait_s(self, model: ModelOffload, fresh: _Fresh) -> float | None:
        num_fresh, now_s = fresh.unsaved.num_fresh, self._clock()
        if num_fresh and not self._is_worth_it(model):
            fresh.unsaved.forget()
            num_fresh = 0
        if not num_fresh:
            fresh.since_s = None
            return None
        if fresh.since_s is None:
            fresh.since_s = now_s
        wait_s = fresh.since_s + _WAIT_S - now_s
        if num_fresh < _FEW and wait_s > 0:
            return wait_s
        if self._saves.is_idle:  # or it is asked again when that has changed
            self._begin(model, fresh)
        return None

    def _begin(self, model: ModelOffload, fresh: _Fresh) -> None:
        self._num_batches += 1
        fresh.since_s, fresh.last_written = None, self._num_batches
        self._saves.begin(model, source=FreshNodes(model.kv, fresh.unsaved, fresh.names))

    def _is_worth_it(self, model: ModelOffload) -> bool:
        """Of a block of each group; if in doubt, it is."""
        if model.files is None or self._store.allowance.is_used_up:
            return False
        compute_s, write_s = (
            model.compute_s(BLOCK_TOKENS),
            self._saves.throughput.seconds(model.kv.block_bytes),
        )
        if compute_s is None or write_s is None or write_s <= compute_s:
            return True
        self._saves.throughput.forgive()
        return False
