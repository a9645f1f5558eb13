"""A GGUF file in the store becomes a model; anything else leaves no trace."""

from __future__ import annotations

import json
import os

import gguf
import pytest

from puna.gguf import GgufError, TensorInfo
from puna.registry import InvalidDigest, MissingBlob, ModelName, StoreError
from puna.registry.create import create_from_gguf
from puna.registry.file_type import parameter_size, quantization_name

pytestmark = pytest.mark.native

NAME = ModelName.parse("m")


def tensors(*shapes_and_types):
    return {str(i): TensorInfo(str(i), kind, shape, 0, 0) for i, (shape, kind) in enumerate(shapes_and_types)}


def test_creates_a_model_with_the_config_that_ollama_shows(store, tiny_gguf):
    digest = store.add_blob([tiny_gguf])
    model = create_from_gguf(store, NAME, digest)
    assert model.model_path == store.blob_path(digest)
    assert model == store.find(NAME)
    config = json.loads(store.blob_path(model.manifest.config.digest).read_bytes())
    assert config == {
        "model_format": "gguf",
        "model_family": "llama",
        "model_families": ["llama"],
        "model_type": "2K",
        "file_type": "F16",
        "architecture": "amd64",
        "os": "linux",
    }


def test_describes_smollm2(store, smollm2_path):
    with smollm2_path.open("rb") as file:
        digest = store.add_blob(iter(lambda: file.read(1 << 20), b""))
    config = create_from_gguf(store, NAME, digest).config
    assert (config.family, config.parameter_size, config.quantization) == ("llama", "134.52M", "Q4_1")


def test_replacing_a_model_removes_what_only_the_old_one_used(store, tiny_gguf, add_model):
    old = add_model(store, "m", model=b"old", template=b"shared")
    add_model(store, "other", model=b"other", template=b"shared")
    create_from_gguf(store, NAME, store.add_blob([tiny_gguf]))
    assert not store.has_blob(old.layers[0].digest)
    assert store.has_blob(old.layers[1].digest)
    assert store.find(NAME).template is None


def test_creating_the_same_model_twice_changes_nothing(store, tiny_gguf, files_of):
    digest = store.add_blob([tiny_gguf])
    first = create_from_gguf(store, NAME, digest)
    before = files_of(store.root)
    assert create_from_gguf(store, NAME, digest).digest == first.digest
    assert files_of(store.root) == before


@pytest.mark.parametrize("damage", [lambda data: b"PK" + data[2:], lambda data: data[:40], lambda _: b""])
def test_what_is_no_gguf_file_makes_no_model(store, tiny_gguf, files_of, damage):
    digest = store.add_blob([damage(tiny_gguf)])
    before = files_of(store.root)
    with pytest.raises(GgufError):
        create_from_gguf(store, NAME, digest)
    assert files_of(store.root) == before


def test_the_blob_must_be_in_the_store(store):
    with pytest.raises(MissingBlob, match="sha256:" + "0" * 64):
        create_from_gguf(store, NAME, "sha256:" + "0" * 64)
    with pytest.raises(InvalidDigest):
        create_from_gguf(store, NAME, "/etc/passwd")


def test_disk_full_while_creating(store, tiny_gguf, full_disk, monkeypatch, files_of):
    digest = store.add_blob([tiny_gguf])
    before = files_of(store.root)
    monkeypatch.setattr("puna.registry.store._write_atomically", full_disk)
    with pytest.raises(OSError, match="No space left on device"):
        create_from_gguf(store, NAME, digest)
    assert files_of(store.root) == before
    monkeypatch.undo()
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StoreError, match="No space left on device"):
        create_from_gguf(store, NAME, digest)
    assert files_of(store.root) == before


@pytest.mark.parametrize(
    ("count", "text"),
    [
        *((0, "0"), (999, "999"), (1000, "1K"), (1_500_000, "1.50M"), (2_000_000, "2M")),
        *(
            (134_515_008, "134.52M"),
            (7_615_616_512, "7.6B"),
            (70_000_000_000, "70B"),
            (7_020_000_000, "7.0B"),
        ),
    ],
)
def test_parameter_counts_as_ollama_prints_them(count, text):
    assert parameter_size(tensors(((count,), "F32"))) == text


def test_quantization_names_are_those_of_llama_cpp():
    for file_type in gguf.LlamaFileType:
        expected = file_type.name.removeprefix("MOSTLY_").removeprefix("ALL_")
        if expected not in ("GUESSED", "NVFP4", "Q1_0", "Q2_0"):
            assert quantization_name({"general.file_type": file_type.value}, {}) == expected


def test_without_a_file_type_most_weights_decide():
    weights = tensors(((10,), "F32"), ((10, 10), "Q4_K"), ((10, 11), "Q6_K"))
    assert quantization_name({}, weights) == "Q6_K"
    assert quantization_name({"general.file_type": 12345}, weights) == "Q6_K"
    assert quantization_name({}, {}) == "unknown"
