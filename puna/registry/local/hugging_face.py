"""The cache of Hugging Face's programs.

<cache>/models--<user>--<repository>/refs/main                    a commit
<cache>/models--<user>--<repository>/snapshots/<commit>/<file>    a link to ../../blobs/<digest>
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from puna.registry.local.directory_files import directory_files
from puna.registry.local.local_file import (
    DIRECTORY_TAG,
    LocalFile,
    fitting,
    gguf_files,
    named_files,
    sorted_entries,
)
from puna.registry.name import ModelName
from puna.registry.store.files.regular_file import read_regular

HOSTS = ("hf.co", "huggingface.co")
_SOURCE = "Hugging Face"
_REPOSITORY = re.compile(r"models--([^-].*?)--(.+)")
_MAX_REF_BYTES = 100
_DEPTH = 2


def repositories(cache: Path, wanted: ModelName | None = None) -> Iterator[list[LocalFile]]:
    """Files by repository; only of the one that is `wanted`, if there is such a name."""
    if wanted is not None and wanted.host.lower() not in HOSTS:
        return
    for directory in sorted_entries(cache):
        match = _REPOSITORY.fullmatch(directory.name)
        if match is None:
            continue
        if wanted is not None and (match[1].lower(), match[2].lower()) != wanted.key[1:3]:
            continue
        files = named_files(HOSTS[0], match[1], match[2], _SOURCE, _files(directory))
        yield [*files, *_directories(directory, match[1], match[2])]


def _files(directory: Path) -> Iterator[Path]:
    """Of the newest revision that has them: programs fetch one file at a time, whatever is newest then."""
    seen = set()
    for snapshot in _snapshots(directory):
        for path in gguf_files(snapshot, _DEPTH):
            if (name := path.relative_to(snapshot)) not in seen:
                seen.add(name)
                yield path


def _directories(directory: Path, user: str, repository: str) -> Iterator[LocalFile]:
    """The newest revision that is a whole model in safetensors, if any is."""
    name = ModelName.from_parts((HOSTS[0], fitting(user, "-"), fitting(repository, ".-"), DIRECTORY_TAG))
    for snapshot in _snapshots(directory):
        if name and (files := directory_files(snapshot)):
            yield LocalFile(name, _SOURCE, files, snapshot)
            return


def _snapshots(directory: Path) -> list[Path]:
    """The branch `main` first, then the latest to be fetched."""
    main = ""
    with suppress(OSError, UnicodeDecodeError):
        main = read_regular(directory / "refs" / "main", _MAX_REF_BYTES).decode().strip()
    found = []
    for path in sorted_entries(directory / "snapshots"):
        with suppress(OSError):  # removed meanwhile
            found.append((path.name != main, -path.stat().st_mtime, path))
    return [path for _, _, path in sorted(found)]
