"""Making a model of a GGUF file that is in the store."""

from __future__ import annotations

from pathlib import Path

import msgspec

from puna.gguf import GgufFile
from puna.registry.digest import parse_digest
from puna.registry.errors import MissingBlob
from puna.registry.file_type import parameter_size, quantization_name
from puna.registry.manifest import CONFIG_TYPE, LAYER_TYPE, Layer, Manifest, ModelConfig
from puna.registry.name import ModelName
from puna.registry.store import Store
from puna.registry.stored_model import StoredModel


def describe_gguf(path: Path) -> ModelConfig:
    """What the config says about a GGUF file. Raises GgufError if it is none."""
    with GgufFile(path) as file:
        family = str(file.metadata.get("general.architecture", "unknown"))
        return ModelConfig(
            format="gguf",
            family=family,
            families=[family],
            parameter_size=parameter_size(file.tensors),
            quantization=quantization_name(file.metadata, file.tensors),
        )


def create_from_gguf(store: Store, name: ModelName, digest: str) -> StoredModel:
    """Creates or replaces the model `name` with the blob `digest` as its weights.

    The blob must be in the store's writable root; it is checked to be a GGUF file first.
    Raises MissingBlob, InvalidDigest, GgufError, StoreError; the store is then as it was.
    """
    path = store.blob_path(digest)
    if not store.has_blob(digest):
        raise MissingBlob(parse_digest(digest))
    config = msgspec.json.encode(describe_gguf(path))
    with store.exclusive():  # many models have the same config blob: deleting one must not take it away
        config_digest = store.add_blob([config])
        manifest = Manifest(
            config=Layer(CONFIG_TYPE, config_digest, len(config)),
            layers=[Layer(LAYER_TYPE + "model", parse_digest(digest), path.stat().st_size)],
        )
        try:
            replaced = store.write_manifest(name, manifest)
        except BaseException:
            store.remove_unused_blobs([config_digest])
            raise
        store.remove_unused_blobs(replaced)
        return store.find(name)
