"""GGUF files that are no models by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from puna.models.architectures import DRAFTERS
from puna.models.hyperparameters import HyperparameterError

_PROJECTOR = "the file is a projector (of images or sound) for another model, not a model"
_DRAFTER = "the file drafts for another model, which brings it along (DRAFT in a Modelfile), and is no model"
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
    if isinstance(architecture, str) and architecture in DRAFTERS:
        raise HyperparameterError(_DRAFTER)
    num_parts = metadata.get("split.count", 0)
    if not isinstance(num_parts, int) or num_parts > 1:
        raise HyperparameterError("the file is one part of a split model; split models are not supported")
