"""LM Studio's directory of models: <directory>/<publisher>/<repository>/<file>.gguf."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from puna.registry.local.local_file import LocalFile, gguf_files, named_files, sorted_entries
from puna.registry.name import ModelName

HOST = "lmstudio"
_SOURCE = "LM Studio"


def repositories(directory: Path, wanted: ModelName | None = None) -> Iterator[list[LocalFile]]:
    """Files by repository; only of the one that is `wanted`, if there is such a name."""
    if wanted is not None and wanted.host.lower() != HOST:
        return
    for publisher in sorted_entries(directory):
        for repository in sorted_entries(publisher):
            files = named_files(HOST, publisher.name, repository.name, _SOURCE, gguf_files(repository, 1))
            if files and (wanted is None or files[0].name.key[:3] == wanted.key[:3]):
                yield files
