"""Giving a model another name."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from puna.registry.digest import Digest, blob_file_name, parse_digest
from puna.registry.name import ModelName
from puna.registry.store.blob_copy import copy_blob
from puna.registry.store.store import Store


def copy_model(
    store: Store,
    source: ModelName,
    destination: ModelName,
    cancelled: threading.Event,
    *,
    prunes: bool = True,
) -> None:
    """Only the manifest is duplicated, as it is; what a model has in a store that is only read is copied.

    prunes: whether what the replaced model had, and no other has, is removed.
    Raises ModelNotFound, CorruptManifest, MissingBlob, StoreError; the store is then as it was.
    """
    raw = store.read_manifest(source)
    with ExitStack() as scratch:
        new = []
        for digest in {parse_digest(layer.digest) for layer in raw.manifest.blobs}:
            if not store.has_blob(digest):
                writer = scratch.enter_context(store.blob_writer(digest))
                copy_blob(raw.blobs / blob_file_name(digest), writer, cancelled)
                new.append(writer)
        with store.exclusive():
            added: list[Digest] = []
            try:
                added.extend(writer.commit() for writer in new)
                replaced = store.write_manifest(destination, raw.manifest, raw.data)
            except BaseException:
                store.remove_unused_blobs(added)
                raise
            if prunes:
                store.remove_unused_blobs(replaced)
