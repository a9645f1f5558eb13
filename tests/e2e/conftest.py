from pathlib import Path

import pytest

from puna.registry import ModelName, Store
from puna.registry.creation.from_gguf import create_from_gguf
from tests.descriptions import SMOLLM2_WEIGHTS
from tests.e2e.launching import MODEL


@pytest.fixture(scope="module")
def models(tmp_path_factory, smollm2_path) -> Path:
    """A store with MODEL."""
    store = Store(tmp_path_factory.mktemp("models"))
    with smollm2_path.open("rb") as file:
        digest = store.add_blob(iter(lambda: file.read(1 << 20), b""))
    create_from_gguf(store, ModelName.parse(MODEL), digest, SMOLLM2_WEIGHTS)
    return store.root
