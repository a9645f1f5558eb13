"""Models as the store holds them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from puna.registry.digest import blob_file_name, parse_digest
from puna.registry.errors import UnsupportedModel
from puna.registry.name import ModelName
from puna.registry.store.blob_reader import open_blob
from puna.registry.store.manifest import LAYER_TYPE, Manifest, ModelConfig
from puna.registry.store.origin import Origin

_MAX_TEMPLATE_BYTES = 4 << 20
"""As text layers may have."""


class StoredMessage(msgspec.Struct, frozen=True):
    """A message that the model brings along, put before every conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """What a list of models needs of one: its manifest and config; nothing else has been read."""

    name: ModelName
    digest: str
    """SHA-256 of the manifest file, 64 hexadecimal digits; the first 12 are the model's ID."""
    size: int
    """Bytes of all blobs."""
    modified_at: datetime
    """When the manifest was written, in local time with offset."""
    manifest: Manifest
    config: ModelConfig
    model_path: Path
    """The GGUF file."""

    @property
    def weights_id(self) -> str:
        """Digest of the weights: models that share them share one place in memory."""
        return self.model_path.name

    @property
    def parent(self) -> str:
        """Short name of the model that it was made from; empty: of none. Of Ollama, it may be a path: that is
        nobody's business.
        """
        origin = next((layer.origin for layer in self.manifest.layers if layer.kind == "model"), None)
        return "" if origin is None or origin.startswith("/") else origin

    @property
    def adapter_path(self) -> Path | None:
        """The GGUF file of its LoRA adapter, if it has one."""
        return self._path_of("adapter")

    @property
    def projector_path(self) -> Path | None:
        """The GGUF file of its projector, which makes what it reads of images, if it has one."""
        return self._path_of("projector")

    @property
    def drafter_path(self) -> Path | None:
        """The GGUF file of what drafts for it, if it brings anything along."""
        return self._path_of("draft")

    def _path_of(self, kind: str) -> Path | None:
        """Of the first layer of this kind."""
        digests = [layer.digest for layer in self.manifest.layers if layer.kind == kind]
        return self.model_path.with_name(blob_file_name(parse_digest(digests[0]))) if digests else None

    def open_adapter(self) -> int:
        """As open(), of a model that has an adapter."""
        assert self.adapter_path is not None, f"{self.name.short} has no adapter"
        return open_blob(self.adapter_path)

    def open_drafter(self) -> int:
        """As open(), of a model that brings along what drafts for it."""
        assert self.drafter_path is not None, f"{self.name.short} has no drafter"
        return open_blob(self.drafter_path)

    def open_projector(self) -> int:
        """As open(); it may be in the model's own file."""
        return self.open() if self.projector_path is None else open_blob(self.projector_path)

    def open(self) -> int:
        """A descriptor for reading the GGUF file, the caller's to close. Raises MissingBlob, StoreError."""
        return open_blob(self.model_path)

    def read_template(self) -> str:
        """The latest Go template of its layers; "": there is none. Raises MissingBlob, StoreError."""
        layers = {layer.kind: layer for layer in self.manifest.layers}
        layer = layers.get("template") or layers.get("prompt")
        if layer is None:
            return ""
        descriptor = open_blob(self.model_path.with_name(blob_file_name(parse_digest(layer.digest))))
        with os.fdopen(descriptor, "rb") as file:
            return file.read(_MAX_TEMPLATE_BYTES).decode(errors="replace")

    def check_loadable(self) -> None:
        """Raises UnsupportedModel for a model that would answer as another one if it was loaded all the same.

        Without its projector a model still answers text as itself.
        """
        if sum(layer.kind == "adapter" for layer in self.manifest.layers) > 1:
            raise UnsupportedModel(f"model '{self.name.short}' has several adapters (LoRA); one is supported")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel(ModelEntry):
    """Everything the store knows about one model; only the weights are left unread."""

    template: str | None = None
    system: str | None = None
    params: dict[str, Any]
    messages: list[StoredMessage]
    licenses: list[str]
    origin: Origin | None = None
    """Where the weights came from, if puna brought them."""

    @property
    def draft(self) -> StoredModel | None:
        """The model that drafts for it, if it brings one along; under a name of its own."""
        layer = next((layer for layer in self.manifest.layers if layer.kind == "draft"), None)
        if layer is None:
            return None
        weights = msgspec.structs.replace(layer, media_type=f"{LAYER_TYPE}model")
        return replace(
            self,
            name=replace(self.name, tag=f"{self.name.tag}-draft"),
            manifest=Manifest(config=self.manifest.config, layers=[weights]),
            model_path=self.model_path.with_name(blob_file_name(parse_digest(layer.digest))),
        )
