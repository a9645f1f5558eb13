"""What is known of a model whose cached prefixes go to disk."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from puna._native import StepCosts
from puna.engine.scheduling.sequence import Sequence
from puna.kv import BlockId
from puna.kv.block_files import BlockFiles
from puna.kv.model_kv import ModelKv


class Transfer(Protocol):
    """Blocks of the model that are being written or read."""

    is_stuck: bool
    """The disk does not answer: nobody waits for it any more."""

    @property
    def held(self) -> Items[BlockId]: ...


@dataclass(eq=False, slots=True)
class ModelOffload:
    """Of one that is awake, or of one that went while its KV was still being written or read."""

    model_id: str
    kv: ModelKv
    files: BlockFiles | None
    """None: nothing of it is kept on disk."""
    costs: StepCosts
    idle_since_s: float
    active: set[Sequence] = field(default_factory=set)
    """Sequences in the engine."""
    num_begun: int = 0
    """Those, and all that were there."""
    saves: list[Transfer] = field(default_factory=list)
    restores: list[Transfer] = field(default_factory=list)
    waiting: list[Sequence] = field(default_factory=list)
    """Where it went and was loaded again: what they want may be on its way to disk."""

    @property
    def is_busy(self) -> bool:
        """Leaves out what nobody waits for any more: the disk does not answer."""
        return bool(self.active or self.is_saving or not all(restore.is_stuck for restore in self.restores))

    @property
    def is_saving(self) -> bool:
        """The same."""
        return not all(save.is_stuck for save in self.saves)

    @property
    def held(self) -> list[BlockId]:
        """Blocks that are being written or read, as often as they are."""
        return [block for transfer in [*self.saves, *self.restores] for block in transfer.held]


def findable_tokens(sequence: Sequence) -> NDArray[np.int32]:
    """Those whose KV may come from elsewhere; see PrefixPolicy."""
    if not sequence.request.cache_prompt:
        return sequence.tokens[:0]
    return sequence.tokens[: sequence.num_findable]
