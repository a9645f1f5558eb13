"""Making a model of a GGUF file that is in the store."""

from __future__ import annotations

from collections.abc import Mapping

from puna.registry.creation.assembling import assemble
from puna.registry.creation.config import config_of
from puna.registry.creation.description import WeightsDescription
from puna.registry.creation.parts import Part
from puna.registry.digest import parse_digest
from puna.registry.errors import MissingBlob
from puna.registry.name import ModelName
from puna.registry.store.origin import Origin
from puna.registry.store.store import Store
from puna.registry.store.stored_model import StoredModel


def create_from_gguf(
    store: Store,
    name: ModelName,
    digest: str,
    description: WeightsDescription,
    origin: Origin | None = None,
    texts: Mapping[str, str] = {},
) -> StoredModel:
    """Creates or replaces the model `name` with the blob `digest`, which `description` is of, as its weights.

    The blob must be in the store's writable root. origin: replaces what was recorded about the blob. texts:
    layers besides the weights, by their kind.
    Raises MissingBlob, InvalidDigest, StoreError; the store is then as it was, but for the origin.
    """
    weights = parse_digest(digest)
    parts = [Part("model", weights), *(Part(kind, text.encode()) for kind, text in texts.items())]
    with store.exclusive():
        if not store.has_blob(weights):
            raise MissingBlob(weights)
        if origin is not None:
            store.write_origin(weights, origin)
        assemble(store, name, config_of(description), parts)
        return store.find(name)
