"""What a LoRA adapter's file says of itself, as llama.cpp's convert_lora_to_gguf.py writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from puna.models.hyperparameters import HyperparameterError, described

_LARGEST = float(np.finfo(np.float32).max)


def read_alpha(metadata: Mapping[str, Any], architecture: str) -> float:
    """What a pair of matrices is scaled by, times their rank; 0: their scale is 1.

    architecture: the model's. Raises HyperparameterError for a file that is no adapter for it.
    """
    for key, expected in (("general.type", "adapter"), ("adapter.type", "lora")):
        if (value := metadata.get(key)) != expected:
            raise HyperparameterError(
                f'the file is no LoRA adapter: metadata {key} is {described(value)}, not "{expected}"'
            )
    if (value := metadata.get("general.architecture")) != architecture:
        raise HyperparameterError(
            f"the adapter is for architecture {described(value)}, the model is {architecture!r}"
        )
    if "adapter.alora.invocation_tokens" in metadata:
        raise HyperparameterError("adapters that begin at certain tokens (aLoRA) are not supported")
    alpha = metadata.get("adapter.lora.alpha", 0.0)
    if not (isinstance(alpha, float) and abs(alpha) <= _LARGEST):
        raise HyperparameterError(f"metadata adapter.lora.alpha is {described(alpha)}, not a finite float32")
    return alpha
