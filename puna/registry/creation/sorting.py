"""Which of uploaded files are what: by their names, and by their first bytes."""

from __future__ import annotations

import os

from puna.registry.creation.recipe import Files
from puna.registry.digest import Digest
from puna.registry.errors import CreationError
from puna.registry.store.store import Store

_GGUF = b"GGUF"
_GGUF_SUFFIXES = (".gguf", ".bin")
_PICKLE_SUFFIXES = (".bin", ".pth", ".pt")
_PICKLES = (b"PK\x03\x04", b"\x80\x02")
_BESIDE = (".json", ".jinja", ".model", ".txt")


def is_safetensors(files: Files) -> bool:
    """Whether these are to be converted: a directory of safetensors and what describes them."""
    return any(name.lower().endswith(".safetensors") for name in files)


def gguf_files(store: Store, files: Files) -> dict[str, Digest]:
    """Those that are GGUF files, in order of their names. Raises CreationError, MissingBlob, StoreError."""
    found = {}
    for name, digest in sorted(files.items()):
        head = _head(store, digest)
        if head.startswith(_GGUF):
            found[name] = digest
        elif head.startswith(_PICKLES) and name.lower().endswith(_PICKLE_SUFFIXES):
            raise CreationError(
                f"{name} is a PyTorch file, which may run any code: convert it to safetensors"
            )
        elif name.lower().endswith(_GGUF_SUFFIXES):
            raise CreationError("supplied file was not in GGUF format")
        elif not name.lower().endswith(_BESIDE):
            raise CreationError("unknown type")
    if not found:
        raise CreationError("unknown type")
    return found


def _head(store: Store, digest: Digest) -> bytes:
    descriptor = store.open_blob(digest)
    try:
        return os.pread(descriptor, len(_GGUF), 0)
    finally:
        os.close(descriptor)
