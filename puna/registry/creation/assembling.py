"""The last step of making a model: blobs and manifest are written, or nothing is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from puna.registry.creation.parts import Part
from puna.registry.digest import Digest
from puna.registry.name import ModelName
from puna.registry.store.blob_writer import BlobWriter
from puna.registry.store.manifest import CONFIG_TYPE, LAYER_TYPE, Layer, Manifest, ModelConfig
from puna.registry.store.store import Store


class AssembledLayer(NamedTuple):
    """What became of a part."""

    layer: Layer
    is_new: bool


def assemble(
    store: Store,
    name: ModelName,
    config: ModelConfig,
    parts: Iterable[Part],
    *,
    spent: Sequence[Digest] = (),
    prunes: bool = True,
) -> list[AssembledLayer]:
    """Creates or replaces the model `name`; returns its layers in order, and its config as the last.

    spent: blobs that the parts were made of, and that are removed then unless a model has them.
    prunes: whether blobs of a replaced model and spent ones are removed where no other model needs them.
    Raises MissingBlob, StoreError; the store is then as it was.
    """
    with store.exclusive():  # many models have the same small blobs: deleting one must not take them away
        made: list[AssembledLayer] = []
        try:
            for part in dict.fromkeys(parts):
                made.append(_layer(store, LAYER_TYPE + part.kind, part))
            made.append(_layer(store, CONFIG_TYPE, Part("", msgspec.json.encode(config))))
            *layers, last = (each.layer for each in made)
            replaced = store.write_manifest(name, Manifest(config=last, layers=layers))
        except BaseException:
            store.remove_unused_blobs(Digest(each.layer.digest) for each in made if each.is_new)
            raise
        if prunes:
            store.remove_unused_blobs([*replaced, *spent])
        return made


def _layer(store: Store, media_type: str, part: Part) -> AssembledLayer:
    """Raises MissingBlob, StoreError."""
    blob = part.blob
    if isinstance(blob, str):
        size = store.blob_size(blob)
        return AssembledLayer(Layer(media_type, blob, size, part.parent or None), is_new=False)
    if isinstance(blob, BlobWriter):
        is_new = not store.has_blob(blob.verify())
        digest, size = blob.commit(), blob.num_bytes
    else:
        is_new = not store.has_blob("sha256:" + hashlib.sha256(blob).hexdigest())
        digest, size = store.add_blob([blob]), len(blob)
    return AssembledLayer(Layer(media_type, digest, size, part.parent or None), is_new)
