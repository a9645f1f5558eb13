"""Completion: what words can follow, asked of what runs already, and bash's script in a real bash."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from puna.cli.completion.scripts import SCRIPTS
from puna.registry import Layer, Manifest, ModelName, Store
from puna.registry.store.manifest import CONFIG_TYPE, LAYER_TYPE

pytestmark = pytest.mark.unit


@pytest.fixture
def complete(server, puna):
    """complete("show", "a"): the words that "a" could become."""
    server.answers["GET", "/api/tags"] = {"models": [{"name": "smollm2:135m"}, {"name": "smollm2:360m"}]}
    return lambda *words: puna("__complete", *words).out.split()


def test_words(complete):
    assert complete("ser") == ["serve", "service"]
    assert complete("kv", "t") == ["top", "trim"]
    assert complete("run", "smollm2:135m", "--k") == ["--keepalive"]
    assert complete("completion", "") == ["bash", "fish", "zsh"]
    assert "__complete" not in complete("")


def test_models(complete):
    assert complete("show", "SM") == ["smollm2:135m", "smollm2:360m"]
    assert complete("rm", "smollm2:135m", "smollm2:3") == ["smollm2:360m"]
    assert complete("show", "--verbose", "smollm2:1") == ["smollm2:135m"]


def test_what_puna_does_not_know_is_left_to_the_shell(puna):
    assert puna("__complete", "create", "m", "-f", "Mo").out == ""


def test_without_a_server_the_store_is_asked_and_nothing_started(server, complete, tmp_path, monkeypatch):
    server.close()
    store = Store(tmp_path / "models")
    layers = [
        Layer(media_type, store.add_blob([data]), len(data))
        for media_type, data in ((CONFIG_TYPE, b"{}"), (LAYER_TYPE + "model", b"weights"))
    ]
    store.write_manifest(ModelName.parse("tiny:1b"), Manifest(config=layers[0], layers=layers[1:]))
    monkeypatch.setenv("OLLAMA_MODELS", str(store.root))
    assert complete("show", "") == ["tiny:1b"]
    assert not (tmp_path / ".ollama").exists()


def test_bash_completes_behind_colons(complete, tmp_path):
    assert complete("show", "")
    program = tmp_path / "puna"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m puna.cli "$@"\n')
    program.chmod(0o755)
    script = SCRIPTS["bash"] + (
        'COMP_LINE="puna show smollm2:1"; COMP_POINT=${#COMP_LINE}; _puna; echo "${COMPREPLY[@]}"\n'
        'COMP_LINE="puna sh"; COMP_POINT=${#COMP_LINE}; _puna; echo "${COMPREPLY[@]}"\n'
    )
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, check=True)
    assert result.stdout == "135m\nshow\n"
