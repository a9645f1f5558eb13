"""Finding manifests: <root>/manifests/<host>/<namespace>/<model>/<tag>."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from puna.registry.name import ModelName
from puna.registry.store.files.regular_file import read_regular
from puna.registry.store.manifest import MAX_MANIFEST_BYTES


def manifest_files(root: Path) -> Iterator[tuple[Path, ModelName]]:
    """Every file that lies where a manifest would, and whose path is a valid name; in order of their paths,
    so that of names that differ only in case it is always the same that comes first.
    """
    yield from _below(root / "manifests", ())


def find_manifest(root: Path, name: ModelName) -> tuple[Path, ModelName] | None:
    """The file that `name` means, and the name as it is spelled there; None if there is none."""
    path = root / "manifests" / Path(*name.parts)
    if is_file(path):
        return path, name
    return next((found for found in manifest_files(root) if found[1].key == name.key), None)


def find_revision(root: Path, name: ModelName) -> tuple[Path, ModelName] | None:
    """A manifest of the same model, under whatever tag, that is the revision that `name` asks for."""
    if name.revision is None:
        return None
    for path, other in manifest_files(root):
        if other.key[:3] == name.key[:3]:
            with suppress(OSError):
                data = read_regular(path, MAX_MANIFEST_BYTES)
                if f"sha256:{hashlib.sha256(data).hexdigest()}" == name.revision:
                    return path, other
    return None


def is_file(path: Path) -> bool:
    """Whether this is a regular file, perhaps through a link; False also where nobody may look."""
    try:
        return path.is_file()
    except OSError:  # no permission, a name too long for the file system, links in a circle
        return False


def _below(directory: Path, parts: tuple[str, ...]) -> Iterator[tuple[Path, ModelName]]:
    """Links are followed, as Ollama does: what they lead to uses blobs as well."""
    try:
        with os.scandir(directory) as scan:
            names = sorted(entry.name for entry in scan)
    except OSError:
        return  # absent, no directory, or not ours to read
    for text in names:
        path, below = directory / text, (*parts, text)
        if len(below) < 4:
            yield from _below(path, below)
        elif (name := ModelName.from_parts(below)) and is_file(path):
            yield path, name
