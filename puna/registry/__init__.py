"""Model names, the store, and the sources that models come from."""

from puna.registry.digest import Digest, parse_digest
from puna.registry.errors import (
    CorruptManifest,
    CreationError,
    DigestMismatch,
    InvalidDigest,
    InvalidModelName,
    MissingBlob,
    ModelNotFound,
    PullError,
    ReadOnlyModel,
    RegistryError,
    StoreError,
    UnsupportedModel,
)
from puna.registry.name import ModelName
from puna.registry.store.manifest import Layer, Manifest, ModelConfig
from puna.registry.store.origin import Origin
from puna.registry.store.store import Store
from puna.registry.store.stored_model import ModelEntry, StoredMessage, StoredModel

__all__ = [
    "CorruptManifest",
    "CreationError",
    "Digest",
    "DigestMismatch",
    "InvalidDigest",
    "InvalidModelName",
    "Layer",
    "Manifest",
    "MissingBlob",
    "ModelConfig",
    "ModelEntry",
    "ModelName",
    "ModelNotFound",
    "Origin",
    "PullError",
    "ReadOnlyModel",
    "RegistryError",
    "Store",
    "StoreError",
    "StoredMessage",
    "StoredModel",
    "UnsupportedModel",
    "parse_digest",
]
