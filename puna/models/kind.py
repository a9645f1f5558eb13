"""GGUF files that are no models by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from puna.models.hyperparameters import HyperparameterError

_PROJECTOR = "the file is a projector (of images or sound) for another model, not a model"
_NO_MODELS = {
    "adapter": "the file is an adapter (LoRA) for another model, not a model",
    "mmproj": _PROJECTOR,
    "projector": _PROJECTOR,
    "imatrix": "the file is an importance matrix for quantization, not a model",
    "vocab": "the file is a vocabulary without a model",
}


def check_is_model(metadata: Mapping[str, Any]) -> None:
    """Raises HyperparameterError for a file that is something else, or a part of a model."""
    kind, architecture = metadata.get("general.type"), metadata.get("general.architecture")
    if isinstance(kind, str) and kind in _NO_MODELS:
        raise HyperparameterError(_NO_MODELS[kind])
    if isinstance(architecture, str) and architecture == "clip":
        raise HyperparameterError(_PROJECTOR)
    num_parts = metadata.get("split.count", 0)
    if not isinstance(num_parts, int) or num_parts > 1:
        raise HyperparameterError("the file is one part of a split model; split models are not supported")
