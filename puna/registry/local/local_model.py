"""A file of another program as a model that can be loaded."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from puna.registry.digest import Digest, blob_file_name
from puna.registry.errors import StoreError, UnsupportedModel
from puna.registry.local.local_file import LocalFile
from puna.registry.store.files.regular_file import open_regular
from puna.registry.store.manifest import CONFIG_TYPE, LAYER_TYPE, Layer, Manifest, ModelConfig
from puna.registry.store.stored_model import StoredModel


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel(StoredModel):
    """Its digest is not that of its content, which nobody has read: see identity_of()."""

    source: str
    """The program's name."""
    paths: tuple[Path, ...]

    @property
    def weights_id(self) -> str:
        return blob_file_name(Digest(f"sha256:{self.digest}"))

    def open(self) -> int:
        """Raises StoreError, also if the file is not any more what it was when it was found."""
        try:
            descriptor = open_regular(self.model_path)
        except OSError as error:
            raise StoreError(f"cannot read {self.model_path.name}: {error.strerror or error}") from error
        if identity_of([os.fstat(descriptor)]) != self.digest:
            os.close(descriptor)
            raise StoreError(f"{self.model_path.name} has just been replaced")
        return descriptor

    def check_loadable(self) -> None:
        if len(self.paths) > 1:
            raise UnsupportedModel(
                f"model '{self.name.short}' is split into {len(self.paths)} files: "
                "pull it, or create a model from them, which joins them"
            )
        super(LocalModel, self).check_loadable()


def local_model(file: LocalFile) -> LocalModel:
    """Of GGUF files. Raises OSError if it is gone."""
    return LocalModel(**description_of(file))


def description_of(file: LocalFile) -> dict[str, Any]:
    """Fields of a LocalModel. Raises OSError."""
    statuses = [path.stat() for path in file.paths]
    digest = identity_of(statuses)
    size = sum(status.st_size for status in statuses)
    return {
        "name": file.name,
        "digest": digest,
        "size": size,
        "modified_at": datetime.fromtimestamp(max(status.st_mtime for status in statuses)).astimezone(),
        "manifest": Manifest(
            config=Layer(CONFIG_TYPE, f"sha256:{hashlib.sha256().hexdigest()}", 0),
            layers=[Layer(LAYER_TYPE + "model", f"sha256:{digest}", size)],
        ),
        "config": ModelConfig(format="gguf" if file.directory is None else "safetensors"),
        "model_path": file.directory or file.paths[0],
        "params": {},
        "messages": [],
        "licenses": [],
        "source": file.source,
        "paths": file.paths,
    }


def identity_of(statuses: list[os.stat_result]) -> str:
    """64 hexadecimal digits that are others as soon as a file is written to, replaced, or moved.

    What is computed from weights is kept under them, so no two contents may have the same. Of content itself,
    all of it would have to be read. `st_ctime` changes even where who writes sets the other times back.
    """
    text = "\n".join(
        f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        for status in statuses
    )
    return hashlib.sha256(f"file used in place\n{text}".encode()).hexdigest()
