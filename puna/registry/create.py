"""Making a model of a GGUF file that is in the store."""

from __future__ import annotations

import msgspec

from puna.registry.digest import parse_digest
from puna.registry.errors import MissingBlob
from puna.registry.manifest import CONFIG_TYPE, LAYER_TYPE, Layer, Manifest, ModelConfig
from puna.registry.name import ModelName
from puna.registry.origin import Origin
from puna.registry.store import Store
from puna.registry.stored_model import StoredModel

_MAX_CHARS = 256


class WeightsDescription(msgspec.Struct, frozen=True):
    """What a GGUF file says about itself; whoever read it has checked that it is one."""

    architecture: str
    parameter_size: str
    """Such as "134.52M"."""
    quantization: str
    """Such as "Q4_1"."""


def create_from_gguf(
    store: Store, name: ModelName, digest: str, description: WeightsDescription, origin: Origin | None = None
) -> StoredModel:
    """Creates or replaces the model `name` with the blob `digest`, which `description` is of, as its weights.

    The blob must be in the store's writable root. origin: replaces what was recorded about the blob.
    Raises MissingBlob, InvalidDigest, StoreError; the store is then as it was, but for the origin.
    """
    weights, path = parse_digest(digest), store.blob_path(digest)
    config = msgspec.json.encode(_config(description))
    with store.exclusive():  # many models have the same config blob: deleting one must not take it away
        if not store.has_blob(weights):
            raise MissingBlob(weights)
        if origin is not None:
            store.write_origin(weights, origin)
        config_digest = store.add_blob([config])
        manifest = Manifest(
            config=Layer(CONFIG_TYPE, config_digest, len(config)),
            layers=[Layer(LAYER_TYPE + "model", weights, path.stat().st_size)],
        )
        try:
            replaced = store.write_manifest(name, manifest)
        except BaseException:
            store.remove_unused_blobs([config_digest])
            raise
        store.remove_unused_blobs(replaced)
        return store.find(name)


def _config(description: WeightsDescription) -> ModelConfig:
    """Texts are cut to what the store reads again."""
    family = description.architecture[:_MAX_CHARS]
    return ModelConfig(
        format="gguf",
        family=family,
        families=[family],
        parameter_size=description.parameter_size[:_MAX_CHARS],
        quantization=description.quantization[:_MAX_CHARS],
    )
