"""Making a model of a GGUF file that is in the store."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from puna.registry.creation.description import WeightsDescription
from puna.registry.digest import Digest, parse_digest
from puna.registry.errors import MissingBlob
from puna.registry.name import ModelName
from puna.registry.store.manifest import CONFIG_TYPE, LAYER_TYPE, Layer, Manifest, ModelConfig
from puna.registry.store.origin import Origin
from puna.registry.store.store import Store
from puna.registry.store.stored_model import StoredModel

_MAX_CHARS = 256


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
    weights, path = parse_digest(digest), store.blob_path(digest)
    small = {CONFIG_TYPE: msgspec.json.encode(_config(description))}
    small |= {LAYER_TYPE + kind: text.encode() for kind, text in texts.items()}
    with store.exclusive():  # many models have the same small blobs: deleting one must not take them away
        if not store.has_blob(weights):
            raise MissingBlob(weights)
        if origin is not None:
            store.write_origin(weights, origin)
        added: list[Digest] = []
        try:
            for content in small.values():
                added.append(store.add_blob([content]))
            config, *layers = [
                Layer(kind, digest, len(content))
                for (kind, content), digest in zip(small.items(), added, strict=True)
            ]
            model = Layer(LAYER_TYPE + "model", weights, path.stat().st_size)
            replaced = store.write_manifest(name, Manifest(config=config, layers=[model, *layers]))
        except BaseException:
            store.remove_unused_blobs(added)
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
