"""The store of models: Ollama's directory layout, readable and writable by both.

<root>/manifests/<host>/<namespace>/<model>/<tag>    manifest, JSON
<root>/blobs/sha256-<64 hex>                         what manifests name by digest
<root>/origins/sha256-<64 hex>.json                  where weights came from; puna's own
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from puna.config.settings import Settings
from puna.registry.digest import Digest, blob_file_name, parse_digest
from puna.registry.errors import (
    CorruptManifest,
    InvalidModelName,
    MissingBlob,
    ModelNotFound,
    ReadOnlyModel,
    StoreError,
)
from puna.registry.local.local_models import LocalModels
from puna.registry.name import ModelName
from puna.registry.store.blob_holds import BlobHolds, unheld
from puna.registry.store.blob_reader import open_blob
from puna.registry.store.blob_writer import BlobWriter
from puna.registry.store.files.atomic_file import remove_empty_directories, write_atomically
from puna.registry.store.files.reported import reported
from puna.registry.store.found_models import FoundModels
from puna.registry.store.manifest import Manifest, decode_manifest, read_manifest, read_manifest_bytes
from puna.registry.store.manifest_files import find_manifest, find_revision, is_file, manifest_files
from puna.registry.store.model_reader import read_entry, read_model
from puna.registry.store.origin import Origin, origin_path
from puna.registry.store.stored_model import ModelEntry, StoredModel

# Inside the class, `list` is the method.
Entries = list[ModelEntry]
Digests = list[Digest]

log = logging.getLogger(__name__)

_MAX_REPORTED = 1000
_NO_OTHERS = LocalModels()
_MAX_REMOVED = 100
"""At once: each takes a descriptor."""


class RawManifest(NamedTuple):
    """A manifest's file."""

    name: ModelName
    """As it is spelled in the store."""
    data: bytes
    manifest: Manifest
    blobs: Path
    """Directory of what it names."""


class Store:
    """A writable root, and further roots that are only read. Safe to use from several threads.

    A model in the writable root hides one of the same name in the others.
    """

    def __init__(self, root: Path, read_only: Sequence[Path] = (), local: LocalModels = _NO_OTHERS) -> None:
        self.root = root
        self.local = local
        """Models of other programs; they are found, but not part of the list."""
        self._roots = (root, *read_only)
        self._found = FoundModels(root)
        # Held while manifests change, so that no manifest ever names a blob that is being deleted.
        self._lock = threading.RLock()
        self._reported: dict[Path, str] = {}
        """Manifests that cannot be used, and why: the log says it once."""

    @classmethod
    def default(cls) -> Store:
        """The store that the environment names."""
        settings = Settings.from_environment()
        return cls(
            settings.models, settings.read_only_models, LocalModels(*settings.local_models, settings.in_place)
        )

    # Models

    def find(self, name: ModelName) -> StoredModel:
        """A model to be run: of the store, or else of another program. Raises ModelNotFound, CorruptManifest,
        MissingBlob.
        """
        try:
            return self.find_stored(name)
        except ModelNotFound:
            if model := self.local.find(name):
                return model
            raise

    def find_stored(self, name: ModelName) -> StoredModel:
        """Case-insensitive; a revision is also found under another tag of its model. Raises ModelNotFound,
        CorruptManifest, MissingBlob.
        """
        for root in self._roots:
            if found := find_manifest(root, name) or find_revision(root, name):
                model = read_model(root, *found)
                if root is self.root and model.name == name:  # no file elsewhere can hide it
                    self._found.add(found[0], model)
                return model
        raise ModelNotFound(name.short)

    def find_again(self, name: ModelName) -> StoredModel | None:
        """What find() has found lately and would find now. Fast enough for an event loop. None: find() knows
        more.
        """
        return self._found.get(name)

    def read_manifest(self, name: ModelName) -> RawManifest:
        """As `find_stored`, but the manifest as it is. Raises ModelNotFound, CorruptManifest."""
        for root in self._roots:
            if found := find_manifest(root, name) or find_revision(root, name):
                data = read_manifest_bytes(found[0])
                return RawManifest(found[1], data, decode_manifest(found[0], data), root / "blobs")
        raise ModelNotFound(name.short)

    def list(self) -> Entries:
        """Every usable model, newest first; the others are left out, with a warning in the log."""
        models: dict[tuple[str, ...], ModelEntry] = {}
        for root in self._roots:
            for path, name in manifest_files(root):
                if name.key in models:
                    continue
                try:
                    models[name.key] = read_entry(root, path, name)
                except (CorruptManifest, MissingBlob) as error:
                    self._report(path, f"left out of the list: {name.short}: {error}")
        return sorted(models.values(), key=lambda model: (-model.modified_at.timestamp(), str(model.name)))

    def _report(self, path: Path, text: str) -> None:
        if self._reported.get(path) != text:
            if len(self._reported) >= _MAX_REPORTED:
                self._reported.clear()
            self._reported[path] = text
            log.warning("%s", text)

    def write_manifest(self, name: ModelName, manifest: Manifest, data: bytes | None = None) -> Digests:
        """Creates or replaces the model, atomically; an existing spelling of its name is kept.

        data: the bytes that the manifest was read from, if they are to stay as they are.
        Returns the digests that the replaced manifest named, for `remove_unused_blobs`.
        Raises MissingBlob if the manifest names a blob that the writable root lacks, InvalidModelName if the
        name is that of another revision, StoreError.
        """
        data = data or msgspec.json.encode(manifest)
        if name.revision not in (None, f"sha256:{hashlib.sha256(data).hexdigest()}"):
            raise InvalidModelName(name.short)
        with self._lock, BlobHolds() as holds:
            for digest in {parse_digest(layer.digest) for layer in manifest.blobs}:
                if not holds.hold(self.blob_path(digest)):
                    raise MissingBlob(digest)
            found = find_manifest(self.root, name)
            path = found[0] if found else self.root / "manifests" / Path(*name.parts)
            replaced = _digests(path) if found else []
            write_atomically(path, data, self.root / "manifests")
        return replaced

    def exclusive(self) -> AbstractContextManager[Any]:
        """Held while several changes belong together: no other thread deletes blobs meanwhile."""
        return self._lock

    def delete(self, name: ModelName) -> set[str]:
        """Deletes the manifest, whatever its state, and the blobs that no other manifest names.

        Returns the ids of the weights that it named (ModelEntry.weights_id), none if it is corrupt. Raises
        ModelNotFound, ReadOnlyModel, StoreError.
        """
        with self._lock:
            found = find_manifest(self.root, name)
            if found is None:
                return self._forget_local(name)
            path = found[0]
            digests, weights_ids = _digests(path), _weights_ids(path)
            with reported("cannot delete the manifest"):
                path.unlink()
            remove_empty_directories(path.parent, self.root / "manifests")
            self.remove_unused_blobs(digests)
        return weights_ids

    def _forget_local(self, name: ModelName) -> set[str]:
        """As delete(): a directory that is used in place is no model any more, and stays what it is."""
        for root in self._roots[1:]:
            if find_manifest(root, name):
                raise ReadOnlyModel(f"model '{name.short}' is in a store that puna only reads")
        model = self.local.find(name)
        with reported(f"cannot remove {name.short}"):
            if self.local.forget(name):
                return {model.weights_id} if model else set()
        if model is None:
            raise ModelNotFound(name.short)
        raise ReadOnlyModel(f"model '{name.short}' is a file of {model.source}, which puna only reads")

    # Blobs

    @property
    def blobs(self) -> Path:
        """Directory of the writable root's blobs."""
        return self.root / "blobs"

    def blob_path(self, digest: str) -> Path:
        """Where the writable root has the blob, or would have it. Raises InvalidDigest."""
        return self.blobs / blob_file_name(parse_digest(digest))

    def has_blob(self, digest: str) -> bool:
        """Whether the writable root has the blob. Raises InvalidDigest."""
        return is_file(self.blob_path(digest))

    def blob_size(self, digest: str) -> int:
        """Bytes of a blob of the writable root. Raises InvalidDigest, MissingBlob, StoreError."""
        try:
            return self.blob_path(digest).stat().st_size
        except FileNotFoundError:
            raise MissingBlob(parse_digest(digest)) from None
        except OSError as error:
            raise StoreError(f"cannot read {digest}: {error.strerror or error}") from error

    def open_blob(self, digest: str) -> int:
        """A descriptor of a blob of the writable root, the caller's to close.

        Raises InvalidDigest, MissingBlob, StoreError.
        """
        return open_blob(self.blob_path(digest))

    def blob_writer(self, expected: str | None = None) -> BlobWriter:
        """A new blob, to be written piece by piece. Raises StoreError, InvalidDigest."""
        return BlobWriter(self.blobs, None if expected is None else parse_digest(expected))

    def add_blob(self, chunks: Iterable[bytes], expected: str | None = None) -> Digest:
        """Stores a blob; with `expected`, raises DigestMismatch (and keeps nothing) if it is another."""
        with self.blob_writer(expected) as writer:
            for chunk in chunks:
                writer.write(chunk)
            return writer.commit()

    def remove_unused_blobs(self, digests: Iterable[Digest]) -> Digests:
        """Removes those that no manifest of the writable root names, and nobody holds who shares the store;
        returns them. Raises StoreError.
        """
        left, removed = list(dict.fromkeys(digests)), []
        while left:
            some, left = left[:_MAX_REMOVED], left[_MAX_REMOVED:]
            with self._lock, ExitStack() as locks:
                # Who comes to name one of them waits, or has held it before: manifests are read after that.
                free = [digest for digest in some if locks.enter_context(unheld(self.blob_path(digest)))]
                removed += self._remove_unused(free)
        return removed

    def _remove_unused(self, digests: Digests) -> Digests:
        try:
            used = {digest for path, _ in manifest_files(self.root) for digest in _digests_strict(path)}
        except CorruptManifest as error:
            # What a corrupt manifest names is not known, and might be repaired: keep everything.
            log.warning("unused blobs are kept: %s", error)
            return []
        unused = [digest for digest in digests if digest not in used]
        for digest in unused:
            with reported(f"cannot delete blob {digest}"):
                self.blob_path(digest).unlink(missing_ok=True)
                origin_path(self.root, digest).unlink(missing_ok=True)
        return unused

    # Origins

    def write_origin(self, weights: Digest, origin: Origin) -> None:
        """Records where a blob came from, in place of what was recorded before. Raises StoreError."""
        path = origin_path(self.root, weights)
        with self._lock:
            write_atomically(path, msgspec.json.encode(origin), path.parent)


def _digests_strict(path: Path) -> list[Digest]:
    return [parse_digest(layer.digest) for layer in read_manifest(path)[0].blobs]


def _digests(path: Path) -> list[Digest]:
    """What the manifest names; nothing if it is corrupt."""
    try:
        return _digests_strict(path)
    except CorruptManifest:
        return []


def _weights_ids(path: Path) -> set[str]:
    try:
        layers = read_manifest(path)[0].layers
    except CorruptManifest:
        return set()
    return {
        blob_file_name(parse_digest(layer.digest)) for layer in layers if layer.kind in ("model", "draft")
    }
