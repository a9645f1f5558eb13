"""`puna models`: how stored models run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from puna.models.architectures import ARCHITECTURES
from puna.models.measured import measured
from puna.registry import ModelName, Store
from puna.registry.creation.description import WeightsDescription
from puna.registry.creation.from_gguf import create_from_gguf
from tests.tiny import TINY, Tiny, write_tiny

pytestmark = pytest.mark.unit


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Tiny], None]:
    """add(name, tiny): a model in the store that the command looks at."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "store"))
    store = Store(tmp_path / "store")

    def create(name: str, tiny: Tiny) -> None:
        content = write_tiny(tmp_path / "tiny.gguf", tiny).read_bytes()
        description = WeightsDescription(tiny.architecture, "1M", "F32")
        create_from_gguf(store, ModelName.parse(name), store.add_blob(iter([content])), description)

    return create


def test_what_runs_and_what_does_not(add, puna):
    add("windows", TINY["gemma3"])
    add("states", TINY["mamba2"])
    add("odd", Tiny("llama", metadata={"attention.head_count_kv": 4}))
    found = {one["name"]: one for one in json.loads(puna("models", "--json").out)["models"]}
    assert found["windows:latest"]["engine"] == found["states:latest"]["engine"] == "native"
    # One layer of seven keeps all tokens: keys and values of two heads of 32 values of two bytes.
    assert found["windows:latest"]["kv_bytes_per_token"] == 2 * 2 * 32 * 2
    assert found["windows:latest"]["fixed_kv_bytes"] > 0
    assert found["states:latest"]["kv_bytes_per_token"] == 0
    assert "6 heads cannot be shared out over 4 KV heads" in found["odd:latest"]["reason"]
    assert found["odd:latest"]["engine"] != "native"
    out = puna("models", "odd").out
    assert re.search(r"^odd:latest +llama +gpt2/gpt-2 ", out, re.MULTILINE)
    assert "windows" not in out


def test_what_was_measured_is_of_architectures_that_there_are():
    assert measured().keys() <= ARCHITECTURES.keys()
