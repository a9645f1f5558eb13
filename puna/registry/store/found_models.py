"""Models found lately; whether their files are still what they were is asked without reading any."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import NamedTuple, TypeAlias

from puna.registry.digest import blob_file_name, parse_digest
from puna.registry.name import ModelName
from puna.registry.store.model_reader import TEXT_KINDS
from puna.registry.store.origin import origin_path
from puna.registry.store.stored_model import StoredModel

_MAX_MODELS = 32
_MAX_TEXT_BYTES = 128 << 10
"""Of a model's texts."""
_SETTLED_NS = 1_000_000_000
"""A file that was changed a shorter time ago may change once more without looking any different."""

_State: TypeAlias = tuple[int, int, int, int]
"""Of a file: it is another one when the file is, or what it holds."""


class _Found(NamedTuple):
    model: StoredModel
    states: tuple[tuple[Path, _State | None], ...]
    """Of all files that say what the model is, by path; None: there is no such file."""


class FoundModels:
    """Those of one root. Safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._found: dict[tuple[str, ...], _Found] = {}
        self._lock = threading.Lock()

    def get(self, name: ModelName) -> StoredModel | None:
        """None: it is not known, or may not be any more what it was. Takes some microseconds: of files that
        were in use lately the system has the states in memory.
        """
        found = self._found.get(_key(name))
        if found is not None and all(_state(path) == state for path, state in found.states):
            return found.model
        return None

    def add(self, manifest: Path, model: StoredModel) -> None:
        """manifest: what `model` was just read from."""
        if sum(layer.size for layer in model.manifest.layers if layer.kind in TEXT_KINDS) > _MAX_TEXT_BYTES:
            return
        blobs = {self._root / "blobs" / _blob_name(layer.digest) for layer in model.manifest.blobs}
        origin = origin_path(self._root, parse_digest(model.weights_id))
        states = {path: _state(path) for path in (manifest, *blobs, origin)}
        settled_ns = time.time_ns() - _SETTLED_NS
        for path, state in states.items():
            if state is None and path != origin:
                return
            if state is not None and state[-1] > settled_ns:
                return
        with self._lock:
            self._found.pop(_key(model.name), None)
            self._found[_key(model.name)] = _Found(model, tuple(states.items()))
            if len(self._found) > _MAX_MODELS:
                del self._found[next(iter(self._found))]


def _key(name: ModelName) -> tuple[str, ...]:
    return (*name.parts, name.scheme)


def _blob_name(digest: str) -> str:
    return blob_file_name(parse_digest(digest))


def _state(path: Path) -> _State | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
