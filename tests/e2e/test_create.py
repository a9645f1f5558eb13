"""Models made by a real daemon: by Ollama's Python client, and by the command line from Modelfiles."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import ollama
import pytest

from puna.registry import ModelName, Store
from tests.convert.directories import DIRECTORIES, random_weights, write_directory
from tests.convert.test_adapter import write_adapter
from tests.e2e.launching import MODEL, PUNA, address_of, launch
from tests.heads import write_drafter, write_predicting
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.e2e

GREEDY = {"temperature": 0, "num_predict": 4}


@pytest.fixture(scope="module")
def address(models: Path) -> Iterator[str]:
    daemon = launch(models, PUNA_KV_DISK="0")
    try:
        yield address_of(daemon)
    finally:
        daemon.terminate()
        daemon.wait(timeout=30)


@pytest.fixture
def client(address: str) -> ollama.Client:
    return ollama.Client(address)


@pytest.fixture
def puna(address: str, tmp_path: Path) -> Callable[..., str]:
    """puna("create", ...) -> standard output; in `tmp_path`."""
    environment = {**os.environ, "OLLAMA_HOST": address, "HOME": str(tmp_path)}

    def run(*arguments: str) -> str:
        return subprocess.run(
            [*PUNA, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    return run


def layers(models: Path, name: str) -> list[tuple[str, str]]:
    manifest = Store(models).find(ModelName.parse(name)).manifest
    return [(layer.kind, layer.digest) for layer in manifest.layers]


def blobs(models: Path) -> set[str]:
    return {path.name for path in (models / "blobs").iterdir()}


def test_by_ollamas_client(client, tmp_path, models):
    statuses = [
        step.status
        for step in client.create(
            "pirate", from_=MODEL, system="You are a pirate.", parameters={"stop": ["x"]}, stream=True
        )
    ]
    assert statuses[-2:] == ["writing manifest", "success"]
    assert client.show("pirate").modelfile.count("SYSTEM You are a pirate.") == 1
    base = client.create_blob(write_tiny(tmp_path / "tiny.gguf", TINY["llama"]))
    directory = tmp_path / "lora"
    write_adapter(directory)
    adapters = {path.name: client.create_blob(path) for path in directory.iterdir()}
    client.create("adapted", files={"tiny.gguf": base}, adapters=adapters)
    assert [kind for kind, _ in layers(models, "adapted")] == ["model", "adapter"]
    client.create("plain", files={"tiny.gguf": base})
    client.create("small", from_="plain", quantize="q8_0")
    assert client.show("small").details.quantization_level == "Q8_0"
    assert client.generate("small", "hi", raw=True, options=GREEDY).eval_count == 4
    adapted, plain = (
        client.generate(name, "hi", raw=True, options={**GREEDY, "num_predict": 32}).response
        for name in ("adapted", "plain")
    )
    assert adapted != plain
    with pytest.raises(ollama.ResponseError, match="template error") as raised:
        client.create("bad", from_=MODEL, template="{{ nonsense }")
    assert raised.value.status_code == 400
    before = blobs(models)
    for name in ("pirate", "adapted", "plain", "small"):
        client.delete(name)
    assert len(blobs(models)) < len(before)


def test_a_shown_modelfile_creates_the_same_again(puna, tmp_path, models):
    (tmp_path / "Modelfile").write_text(
        f'FROM {MODEL}\nTEMPLATE """{{{{ .System }}}}\n"{{{{ .Prompt }}}}" """\nSYSTEM " be  kind"\n'
        "PARAMETER stop <|im_end|>\nPARAMETER stop #\nPARAMETER temperature 0.7\nPARAMETER num_ctx 512\n"
        'LICENSE """\nMIT & more\n"""\nMESSAGE user hi\nMESSAGE assistant "ho\nho"\nREQUIRES 0.14.0\n'
    )
    puna("create", "first")
    shown = tmp_path / "Shown"
    shown.write_text(puna("show", "--modelfile", "first"))
    puna("create", "second", "-f", "Shown")
    assert layers(models, "second") == layers(models, "first")
    assert len(layers(models, "first")) == 6
    puna("cp", "second", "third")
    assert layers(models, "third") == layers(models, "first")
    puna("rm", "first", "second", "third")


def test_a_drafter_brought_along_drafts(puna, client, address, tmp_path):
    tiny = replace(TINY["gemma4"], attention_scale=0.3)
    model = write_predicting(tmp_path / "model.gguf", tiny)
    write_drafter(tmp_path / "drafter.gguf", model)
    (tmp_path / "Modelfile").write_text("FROM ./model.gguf\nDRAFT ./drafter.gguf\nPARAMETER temperature 0\n")
    puna("create", "drafted")
    assert "DRAFT" in puna("show", "--modelfile", "drafted")
    replies = [
        client.generate(
            "drafted", "hello", raw=True, options={"num_predict": 100, "draft_num_predict": count}
        )
        for count in (0, 4)
    ]
    assert replies[0].response == replies[1].response
    drafted = re.search(
        r'puna_speculation_drafted_tokens_total\{model="drafted.*\} (\d+)',
        httpx.get(f"http://{address}/metrics").text,
    )
    assert drafted is not None
    assert int(drafted[1]) > 0
    puna("rm", "drafted")


def test_a_directory_of_safetensors_quantized(puna, client, tmp_path, models):
    write_directory(tmp_path, DIRECTORIES["llama"], random_weights(DIRECTORIES["llama"]), num_parts=2)
    before = blobs(models)
    puna("create", "converted", "-q", "q8_0")
    assert client.show("converted").details.quantization_level == "Q8_0"
    assert client.generate("converted", "hi", raw=True, options=GREEDY).eval_count == 4
    assert len(blobs(models) - before) == 2  # weights and config: of the uploads nothing stays
    puna("rm", "converted")
    assert blobs(models) == before
