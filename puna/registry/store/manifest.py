"""Manifests and config blobs: the JSON files of the store, as Ollama writes them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import msgspec

from puna.registry.digest import parse_digest
from puna.registry.errors import CorruptManifest, InvalidDigest
from puna.registry.store.files.regular_file import read_regular

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
LAYER_TYPE = "application/vnd.ollama.image."
"""Prefix of a layer's media type; the rest is its kind: model, template, system, params, ..."""

# Of models that consist of a layer for each tensor, which others keep in the same store.
MAX_MANIFEST_BYTES = 4 << 20
# So that the sum of all layers that fit into a manifest is a number that every client can read.
_MAX_LAYER_BYTES = 1 << 46

_Word = Annotated[str, msgspec.Meta(max_length=256)]
_Length = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class Layer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One blob of a model; `size` in bytes. `from` and `name` are kept for Ollama, unused here."""

    media_type: _Word
    digest: _Word
    size: Annotated[int, msgspec.Meta(ge=0, le=_MAX_LAYER_BYTES)]
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

    format: _Word = ""
    family: _Word = ""
    families: Annotated[list[_Word], msgspec.Meta(max_length=64)] | None = None
    parameter_size: _Word = ""
    """Such as "134.52M"."""
    quantization: _Word = ""
    """Such as "Q4_1"."""
    renderer: _Word | msgspec.UnsetType = msgspec.UNSET
    parser: _Word | msgspec.UnsetType = msgspec.UNSET
    """What is built into Ollama and makes prompts, reads replies; else the template does."""
    requires: _Word | msgspec.UnsetType = msgspec.UNSET
    """The version of Ollama that the model was made for; shown, not enforced."""
    capabilities: Annotated[list[_Word], msgspec.Meta(max_length=64)] | msgspec.UnsetType = msgspec.UNSET
    context_length: _Length | msgspec.UnsetType = msgspec.UNSET
    embedding_length: _Length | msgspec.UnsetType = msgspec.UNSET
    base_name: _Word | msgspec.UnsetType = msgspec.UNSET
    # Constants that Ollama writes into every config, whatever the machine.
    architecture: _Word = "amd64"
    os: _Word = "linux"


def read_manifest(path: Path) -> tuple[Manifest, str]:
    """The manifest, whose digests are well-formed, and the SHA-256 of its bytes. Raises CorruptManifest."""
    data = read_manifest_bytes(path)
    return decode_manifest(path, data), hashlib.sha256(data).hexdigest()


def read_manifest_bytes(path: Path) -> bytes:
    """Raises CorruptManifest."""
    try:
        return read_regular(path, MAX_MANIFEST_BYTES)
    except OSError as error:
        raise CorruptManifest(path, error.strerror or str(error)) from error


def decode_manifest(path: Path, data: bytes) -> Manifest:
    """The bytes of the file at `path` as a manifest whose digests are well-formed. Raises CorruptManifest."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptManifest(path, str(error)) from error
    for layer in manifest.blobs:
        try:
            parse_digest(layer.digest)
        except InvalidDigest:
            raise CorruptManifest(path, f"invalid digest {layer.digest!a}") from None
    return manifest
