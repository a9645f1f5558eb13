"""The config of a new model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from puna.registry.creation.description import WeightsDescription
from puna.registry.errors import CreationError
from puna.registry.store.manifest import ModelConfig

_MAX_CHARS = 256
_TEXTS = {
    "model_family": "family",
    "base_name": "base_name",
    "quantization_level": "quantization",
    "parameter_size": "parameter_size",
}
_LENGTHS = ("context_length", "embedding_length")
_MAX_LENGTH = 1 << 40
_Capabilities = Annotated[
    list[Annotated[str, msgspec.Meta(max_length=_MAX_CHARS)]], msgspec.Meta(max_length=64)
]


def config_of(description: WeightsDescription, companions: Sequence[str] = ()) -> ModelConfig:
    """Texts are cut to what the store reads again. companions: architectures of its projectors."""
    family = description.architecture[:_MAX_CHARS]
    return ModelConfig(
        format="gguf",
        family=family,
        families=list(dict.fromkeys([family, *(other[:_MAX_CHARS] for other in companions)])),
        parameter_size=description.parameter_size[:_MAX_CHARS],
        quantization=description.quantization[:_MAX_CHARS],
    )


def overrides(info: dict[str, Any]) -> dict[str, Any]:
    """Fields of the config that `info` of a request replaces; empty texts replace nothing. Raises
    CreationError.
    """
    fields: dict[str, Any] = {}
    for name, field in _TEXTS.items():
        value = info.get(name, "")
        if not isinstance(value, str) or len(value) > _MAX_CHARS:
            raise CreationError(f'info field "{name}" must be a string')
        if value:
            fields[field] = value
    for name in _LENGTHS:
        value = info.get(name, 0)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= _MAX_LENGTH or value != int(value):
            raise CreationError(f'info field "{name}" must be a non-negative integer')
        if value:
            fields[name] = int(value)
    if capabilities := info.get("capabilities"):
        try:
            fields["capabilities"] = msgspec.convert(capabilities, _Capabilities)
        except msgspec.ValidationError as error:
            raise CreationError('info field "capabilities" must be a list of strings') from error
    return fields
