"""What is converted, and how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

BASE_MODEL = "base.gguf"
"""Under this name an adapter's conversion gets the model that it is for."""


class ConvertJob(msgspec.Struct, frozen=True):
    kind: Literal["safetensors", "header", "adapter", "gguf"]
    """A model's directory; only a header for one, or for all parts of a split GGUF file; the directory of a
    LoRA adapter (PEFT); one GGUF file or all parts of a split one.
    """
    quantize: str = ""
    """The type that most weights get, such as "Q4_K_M"; empty: they stay what they are."""


class ConvertProgress(msgspec.Struct, frozen=True, tag=True):
    status: str
    completed: int
    """Bytes of the output that are written..."""
    total: int
    """...of so many."""


Report = Callable[[ConvertProgress], None]
