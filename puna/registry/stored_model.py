"""A model as the store holds it: manifest -> layer digests -> blobs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from puna.registry.digest import Digest, parse_digest
from puna.registry.errors import CorruptManifest, InvalidDigest
from puna.registry.manifest import Layer, Manifest, ModelConfig
from puna.registry.name import ModelName

T = TypeVar("T")

# A manifest may name any blob as its template: do not read gigabytes of weights as text.
_MAX_TEXT_BYTES = 16 << 20
_MAX_MANIFEST_BYTES = 4 << 20


class StoredMessage(msgspec.Struct, frozen=True):
    """A message that the model brings along, put before every conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """Everything the store knows about one model; only `model_path` is left unread."""

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
    template: str | None = None
    system: str | None = None
    params: dict[str, Any]
    messages: list[StoredMessage]
    licenses: list[str]

    @property
    def weights_id(self) -> str:
        """Digest of the weights: models that share them share one place in memory."""
        return self.model_path.name


def read_manifest(path: Path) -> tuple[Manifest, str]:
    """The manifest and the SHA-256 of its bytes. Raises CorruptManifest."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise CorruptManifest(path, error.strerror or str(error)) from error
    if len(data) > _MAX_MANIFEST_BYTES:
        raise CorruptManifest(path, "larger than a manifest can be")
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptManifest(path, str(error)) from error
    for layer in manifest.blobs:
        try:
            parse_digest(layer.digest)
        except InvalidDigest:
            raise CorruptManifest(path, f"invalid digest {layer.digest!r}") from None
    return manifest, hashlib.sha256(data).hexdigest()


def read_model(path: Path, name: ModelName, find_blob: Callable[[Digest], Path]) -> StoredModel:
    """Reads the manifest at `path` and the small blobs. Raises CorruptManifest, MissingBlob."""
    manifest, digest = read_manifest(path)
    reader = _BlobReader(path, find_blob)
    layers = {kind: [layer for layer in manifest.layers if layer.kind == kind] for kind in _KINDS}
    if len(layers["model"]) != 1:
        found = f"{len(layers['model'])} layers of GGUF weights"
        raise CorruptManifest(path, f"{found}, where puna needs exactly one")
    return StoredModel(
        name=name,
        digest=digest,
        size=sum(layer.size for layer in manifest.blobs),
        modified_at=datetime.fromtimestamp(path.stat().st_mtime).astimezone(),
        manifest=manifest,
        config=reader.json(manifest.config, ModelConfig),
        model_path=reader.path(layers["model"][0]),
        template=reader.last_text(layers["template"] or layers["prompt"]),
        system=reader.last_text(layers["system"]),
        params={
            key: value
            for layer in layers["params"]
            for key, value in reader.json(layer, dict[str, Any]).items()
        },
        messages=[
            message for layer in layers["messages"] for message in reader.json(layer, list[StoredMessage])
        ],
        licenses=[reader.text(layer) for layer in layers["license"]],
    )


_KINDS = ("model", "template", "prompt", "system", "params", "messages", "license")


@dataclass(frozen=True, slots=True)
class _BlobReader:
    """Reads blobs on behalf of the manifest at `manifest_path`, which errors name."""

    manifest_path: Path
    find_blob: Callable[[Digest], Path]

    def path(self, layer: Layer) -> Path:
        path = self.find_blob(parse_digest(layer.digest))
        if (size := path.stat().st_size) != layer.size:
            raise CorruptManifest(self.manifest_path, f"{path} has {size} bytes, expected {layer.size}")
        return path

    def text(self, layer: Layer) -> str:
        try:
            return self._read(layer).decode()
        except UnicodeDecodeError as error:
            raise CorruptManifest(self.manifest_path, f"{layer.digest}: {error}") from error

    def last_text(self, layers: list[Layer]) -> str | None:
        return self.text(layers[-1]) if layers else None

    def json(self, layer: Layer, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(self._read(layer), type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CorruptManifest(self.manifest_path, f"{layer.digest}: {error}") from error

    def _read(self, layer: Layer) -> bytes:
        path = self.path(layer)
        if layer.size > _MAX_TEXT_BYTES:
            raise CorruptManifest(self.manifest_path, f"{path} is too large to be text ({layer.size} bytes)")
        return path.read_bytes()
