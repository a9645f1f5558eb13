"""Why a model that can be run is not loaded."""

from __future__ import annotations

from puna.backends.base import ModelLoadError
from puna.config.sizes import binary_size
from puna.kv.budget import Shortage


class ModelDoesNotFit(ModelLoadError):
    """There is too little memory for a model, beside what others hold."""

    def __init__(self, shortage: Shortage, text: str | None = None) -> None:
        what = "KV memory" if shortage.is_of_kv else "memory"
        taken = f", and others hold {binary_size(shortage.taken_bytes)}" if shortage.taken_bytes else ""
        super().__init__(
            text
            or f"the model needs at least {binary_size(shortage.needed_bytes)} of {what}, "
            f"the limit is {binary_size(shortage.limit_bytes)}{taken}"
        )
        self.shortage = shortage
