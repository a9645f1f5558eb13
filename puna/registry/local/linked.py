"""Directories and split files that the user has run: links to them, below the user's own directory of puna.

<links>/<name>    a link to a directory of safetensors, or to the first part of a split GGUF file
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from puna.registry.local.directory_files import directory_files
from puna.registry.local.local_file import DIRECTORY_TAG, PARTS_TAG, LocalFile, parts_of, sorted_entries
from puna.registry.name import DEFAULT_HOST, DEFAULT_TAG, ModelName

NAMESPACE = "local"
"""Of what was named by a path, so that `./llama3` never replaces the model `llama3`."""
SOURCE = "a path"
_TAGS = (DEFAULT_TAG, DIRECTORY_TAG, PARTS_TAG)


def repositories(links: Path, wanted: ModelName | None = None) -> Iterator[list[LocalFile]]:
    """Each has one model; only the one that is `wanted`, if there is such a name."""
    for link in sorted_entries(links):
        name = _name_of(link)
        if name is None or (wanted is not None and wanted.key[:3] != name.key[:3]):
            continue
        target = Path(os.path.realpath(link))
        if files := directory_files(target):
            yield [LocalFile(name, SOURCE, files, target)]
        elif parts := parts_of(target):
            yield [LocalFile(replace(name, tag=PARTS_TAG), SOURCE, parts)]


def link_named(links: Path, name: ModelName) -> Path | None:
    """The link that a name means, whether or not its directory is still there."""
    for link in sorted_entries(links):
        own = _name_of(link)
        is_wanted = own is not None and name.key[:3] == own.key[:3] and name.tag.lower() in _TAGS
        if is_wanted and link.is_symlink():
            return link
    return None


def _name_of(link: Path) -> ModelName | None:
    return ModelName.from_parts((DEFAULT_HOST, NAMESPACE, link.name, DIRECTORY_TAG))


def target_of(links: Path, name: str) -> Path | None:
    """What a link of this name leads to now."""
    with suppress(OSError):
        return (links / name).readlink()
    return None


def link(links: Path, name: str, directory: Path) -> None:
    """In place of an earlier one of that name. Raises OSError."""
    links.mkdir(parents=True, exist_ok=True)
    temporary = links / f".{name}-{os.getpid()}"
    with suppress(FileNotFoundError):
        temporary.unlink()
    temporary.symlink_to(directory)
    temporary.replace(links / name)


def unlink(links: Path, name: str) -> None:
    """Raises OSError, also for what is no link."""
    path = links / name
    path.readlink()
    path.unlink()
