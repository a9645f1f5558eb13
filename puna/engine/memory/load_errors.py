"""Why a model that can be run is not in memory."""

from __future__ import annotations

from puna.backends.base import ModelLoadError
from puna.kv.limits import NOTHING, Limits


class ModelDoesNotFit(ModelLoadError):
    """There is too little memory for a model, beside what others hold; the text says who holds what."""

    def __init__(self, text: str, lack: Limits = NOTHING) -> None:
        """lack: by how much the engine's limits are too low; it does not cross a channel."""
        super().__init__(text)
        self.lack = lack
