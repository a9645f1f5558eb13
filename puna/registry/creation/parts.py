"""What a model is put together from."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from puna.registry.digest import Digest, parse_digest
from puna.registry.store.blob_writer import BlobWriter
from puna.registry.store.stored_model import ModelEntry

FILE_KINDS = ("model", "projector", "adapter", "draft")


class Part(NamedTuple):
    """A layer to be."""

    kind: str
    blob: Digest | bytes | BlobWriter
    """What is in the store; content of a new blob; or a new file that has been verified."""
    parent: str = ""
    """Short name of the model that it comes from."""


def inherited(model: ModelEntry, kinds: Collection[str]) -> list[Part]:
    """The model's layers of these kinds, in its order."""
    return [
        Part(layer.kind, parse_digest(layer.digest), model.name.short)
        for layer in model.manifest.layers
        if layer.kind in kinds
    ]
