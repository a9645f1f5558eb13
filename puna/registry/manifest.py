"""Manifests and config blobs: the JSON files of the store, as Ollama writes them."""

from __future__ import annotations

import msgspec

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
LAYER_TYPE = "application/vnd.ollama.image."
"""Prefix of a layer's media type; the rest is its kind: model, template, system, params, ..."""


class Layer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One blob of a model; `size` in bytes. `from` and `name` are kept for Ollama, unused here."""

    media_type: str
    digest: str
    size: int
    origin: str | None = msgspec.field(default=None, name="from")
    name: str | None = None

    @property
    def kind(self) -> str:
        """`model`, `template`, ...; empty for a media type that is not a layer's."""
        return self.media_type.removeprefix(LAYER_TYPE) if self.media_type.startswith(LAYER_TYPE) else ""


class Manifest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a model consists of."""

    schema_version: int = 2
    media_type: str = MANIFEST_TYPE
    config: Layer
    layers: list[Layer]

    @property
    def blobs(self) -> tuple[Layer, ...]:
        """Everything the manifest keeps in the store: config and layers."""
        return (self.config, *self.layers)


class ModelConfig(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={
        "format": "model_format",
        "family": "model_family",
        "families": "model_families",
        "parameter_size": "model_type",
        "quantization": "file_type",
    },
):
    """The config blob: what can be said about a model without opening its weights."""

    format: str = ""
    family: str = ""
    families: list[str] | None = None
    parameter_size: str = ""
    """Such as "134.52M"."""
    quantization: str = ""
    """Such as "Q4_1"."""
    # Constants that Ollama writes into every config, whatever the machine.
    architecture: str = "amd64"
    os: str = "linux"
