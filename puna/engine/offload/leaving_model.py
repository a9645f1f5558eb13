"""What is left of a model that was unloaded."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from puna.engine.offload.prefix_restores import WarmModel
from puna.engine.scheduling.sequence import Sequence

_HURRIED_SAVE_S = 0.3  # once somebody waits to read it


@dataclass(eq=False, slots=True)
class LeavingModel:
    """Its KV is still being written or read."""

    model_id: str
    model: WarmModel
    waiting: list[Sequence] = field(default_factory=list)
    """Of the same model, loaded again: what they want may be on its way to disk."""

    def hurry(self) -> None:
        """What is not written soon, is not written."""
        deadline_s = time.monotonic() + _HURRIED_SAVE_S
        for save in self.model.saves:
            save.deadline_s = deadline_s if save.deadline_s is None else min(save.deadline_s, deadline_s)
