"""Reading a model: manifest -> layer digests -> blobs.

Whatever these files say, little memory and time are taken.
"""

from __future__ import annotations

import stat
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from puna.registry.digest import blob_file_name, parse_digest
from puna.registry.errors import CorruptManifest, MissingBlob
from puna.registry.name import ModelName
from puna.registry.store.files.regular_file import read_regular
from puna.registry.store.manifest import Layer, ModelConfig, read_manifest
from puna.registry.store.origin import read_origin
from puna.registry.store.stored_model import ModelEntry, StoredMessage, StoredModel

T = TypeVar("T")

# A manifest may name any blob as its template: do not read gigabytes of weights as text.
MAX_TEXT_BYTES = 4 << 20
MAX_TEXTS_BYTES = 8 << 20
MAX_TEXT_LAYERS = 100
# Parsed JSON of any shape takes up to thirty times its bytes.
MAX_PARAMS_BYTES = 256 << 10
_MAX_CONFIG_BYTES = 1 << 20

_LAST_TIME_S = 253402214400  # a day before the year 10000, the first that datetime does not know


def read_entry(root: Path, path: Path, name: ModelName) -> ModelEntry:
    """Reads the manifest at `path` in the store at `root`, and the config.

    Raises CorruptManifest, MissingBlob.
    """
    manifest, digest = read_manifest(path)
    if name.revision not in (None, parse_digest(f"sha256:{digest}")):
        raise CorruptManifest(path, f"is another revision, sha256:{digest}")
    blobs = _Blobs(root, path)
    weights = [layer for layer in manifest.layers if layer.kind == "model"]
    if len(weights) != 1:
        raise CorruptManifest(path, f"{len(weights)} layers of GGUF weights, where puna needs exactly one")
    return ModelEntry(
        name=name,
        digest=digest,
        size=sum(layer.size for layer in manifest.blobs),
        modified_at=blobs.modified_at(),
        manifest=manifest,
        config=blobs.json(manifest.config, ModelConfig, _MAX_CONFIG_BYTES),
        model_path=blobs.path(weights[0]),
    )


def read_model(root: Path, path: Path, name: ModelName) -> StoredModel:
    """As read_entry(), and the small blobs."""
    entry = read_entry(root, path, name)
    blobs = _Blobs(root, path)
    layers = {kind: _distinct(entry.manifest.layers, kind) for kind in TEXT_KINDS}
    if sum(map(len, layers.values())) > MAX_TEXT_LAYERS:
        raise CorruptManifest(path, f"more than {MAX_TEXT_LAYERS} layers of text")
    return StoredModel(
        **{field.name: getattr(entry, field.name) for field in fields(entry)},
        template=blobs.last_text(layers["template"] or layers["prompt"]),
        system=blobs.last_text(layers["system"]),
        params={
            key: value
            for layer in layers["params"]
            for key, value in blobs.json(layer, dict[str, Any], MAX_PARAMS_BYTES).items()
        },
        messages=[
            message
            for layer in layers["messages"]
            for message in blobs.json(layer, list[StoredMessage], MAX_TEXT_BYTES)
        ],
        licenses=[blobs.text(layer) for layer in layers["license"]],
        origin=read_origin(root, parse_digest(entry.weights_id)),
    )


TEXT_KINDS = ("template", "prompt", "system", "params", "messages", "license")


def _distinct(layers: list[Layer], kind: str) -> list[Layer]:
    """Those of this kind; what is named several times counts where it is named last."""
    found = {parse_digest(layer.digest): layer for layer in reversed(layers) if layer.kind == kind}
    return list(reversed(found.values()))


class _Blobs:
    """Reads blobs on behalf of a manifest, which errors name; raises CorruptManifest, MissingBlob."""

    def __init__(self, root: Path, manifest_path: Path) -> None:
        self._directory = root / "blobs"
        self._manifest_path = manifest_path
        self._left_bytes = MAX_TEXTS_BYTES

    def modified_at(self) -> datetime:
        """Of the manifest."""
        try:
            time_s = self._manifest_path.stat().st_mtime
        except OSError as error:
            raise self._corrupt(error.strerror or str(error)) from error
        return datetime.fromtimestamp(min(max(time_s, 0), _LAST_TIME_S)).astimezone()

    def path(self, layer: Layer) -> Path:
        """Of a regular file, perhaps through a link, that is as large as the manifest says."""
        digest = parse_digest(layer.digest)
        path = self._directory / blob_file_name(digest)
        try:
            status = path.stat()
        except FileNotFoundError:
            raise MissingBlob(digest) from None
        except OSError as error:
            raise self._corrupt(f"{path.name}: {error.strerror or error}") from error
        if not stat.S_ISREG(status.st_mode):
            raise self._corrupt(f"{path.name}: not a regular file")
        if status.st_size != layer.size:
            raise self._corrupt(f"{path.name} has {status.st_size} bytes, expected {layer.size}")
        return path

    def text(self, layer: Layer) -> str:
        try:
            return self._read(layer, MAX_TEXT_BYTES).decode()
        except UnicodeDecodeError as error:
            raise self._corrupt(f"{layer.digest}: {error}") from error

    def last_text(self, layers: list[Layer]) -> str | None:
        return self.text(layers[-1]) if layers else None

    def json(self, layer: Layer, kind: type[T], max_bytes: int) -> T:
        try:
            return msgspec.json.decode(self._read(layer, max_bytes), type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._corrupt(f"{layer.digest}: {error}") from error

    def _read(self, layer: Layer, max_bytes: int) -> bytes:
        path = self.path(layer)
        if layer.size > min(max_bytes, self._left_bytes):
            raise self._corrupt(f"{path.name} is too large for its kind ({layer.size} bytes)")
        self._left_bytes -= layer.size
        try:
            return read_regular(path, layer.size)
        except OSError as error:
            raise self._corrupt(f"{path.name}: {error.strerror or error}") from error

    def _corrupt(self, reason: str) -> CorruptManifest:
        return CorruptManifest(self._manifest_path, reason)
