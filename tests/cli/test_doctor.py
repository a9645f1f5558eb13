"""The doctor: what is found, that it is said, and the exit status."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from puna.bench.machine import Roofs
from puna.cli.doctor import machine
from puna.cli.doctor.model import model_findings
from puna.config.settings import Settings
from tests.tiny import ENCODERS, TINY, write_tiny

pytestmark = pytest.mark.unit


@pytest.fixture
def examine(server, puna, monkeypatch):
    """examine(): {name: finding} of a machine whose speed takes no time to measure; and the exit status."""
    server.answers["GET", "/api/version"] = {"version": "0.22.0", "puna": "9.9.9"}
    roofs = Roofs(ops_per_second=2e12, bytes_per_second=4e10)
    monkeypatch.setattr(machine, "measure_roofs", lambda _: roofs)

    def run(*arguments):
        result = puna("doctor", "--json", *arguments)
        reply = json.loads(result.out)
        assert reply["healthy"] == (result.status == 0)
        return {finding["name"]: finding for finding in reply["findings"]}, result.status

    return run


def test_a_healthy_machine(examine, puna, server):
    found, status = examine()
    assert status == 0
    assert found["address"]["text"] == f"puna 9.9.9 answers at 127.0.0.1:{server.port}"
    assert found["speed"]["text"].startswith("memory 40 GB/s, integers 2000 Gop/s")
    assert found["models"]["text"].startswith("0, 0 B, in ")
    out = puna("doctor").out
    assert found["second engine"]["level"] == "ok"
    assert "  Machine\n    processor " in out
    assert "\x1b" not in out


def test_a_second_engine_that_is_wanted_and_not_there(examine, monkeypatch):
    monkeypatch.setenv("PUNA_LLAMA_SERVER", "/nowhere")
    found, status = examine()
    assert found["second engine"]["advice"] == "PUNA_LLAMA_SERVER: /nowhere is no program"
    assert status == 1


def test_settings_that_nobody_reads_or_that_are_wrong(examine, monkeypatch):
    monkeypatch.setenv("PUNA_NUM_TREADS", "2")
    monkeypatch.setenv("OLLAMA_CONTEXT_LENGTH", "many")
    found, status = examine()
    assert found["PUNA_NUM_TREADS"]["advice"] == "do you mean PUNA_NUM_THREADS?"
    assert "OLLAMA_CONTEXT_LENGTH" in found["value"]["text"]
    assert status == 0
    monkeypatch.setenv("PUNA_DRAIN", "soon")
    found, status = examine()
    assert (found["value"]["level"], status) == ("error", 1)


def test_who_has_the_address(examine, server):
    server.answers["GET", "/api/version"] = {"version": "0.22.0"}
    found, status = examine()
    assert found["address"]["text"].startswith("Ollama 0.22.0 answers")
    assert (found["address"]["level"], status) == ("warning", 0)
    server.answers["GET", "/api/version"] = (404, {"error": "404 page not found"})
    found, status = examine()
    assert "taken by something else" in found["address"]["text"]
    assert status == 1
    server.close()
    assert examine()[0]["address"]["text"].startswith("nobody answers")


def test_a_store_that_cannot_be_written(examine, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "file"))
    found, status = examine()
    assert (found["models"]["level"], status) == ("error", 1)


def needs(path):
    return {each.name: each for each in model_findings(str(path), Settings.from_environment())}


def test_what_a_model_needs(smollm2_path, monkeypatch):
    found = needs(smollm2_path)
    assert found["architecture"].text == "llama, 30 layers"
    assert found["KV memory"].text == "22.5 MiB per 1,024 tokens (f16)"
    assert {finding.level for finding in found.values()} == {"ok"}
    monkeypatch.setenv("PUNA_MEMORY_LIMIT", "50MiB")
    monkeypatch.setenv("OLLAMA_KVCACHED_MEMORY_GB", "0.05")
    found = needs(smollm2_path)
    assert found["weights"].level == "error"
    assert found["KV budget"].text.startswith("2,320 of its 8,192 tokens fit into 51.2 MiB")


def test_a_model_that_llama_cpp_is_asked_to_run(examine, tmp_path, monkeypatch):
    path = write_tiny(tmp_path / "strange.gguf", replace(TINY["llama"], architecture="strange"))
    monkeypatch.setenv("PUNA_LLAMA_SERVER", sys.executable)
    found, status = examine(str(path))
    assert found[str(path)]["text"].endswith("'strange' is not supported")
    assert found[str(path)]["advice"] == f"llama.cpp's server is asked to run it: {sys.executable}"
    assert (found[str(path)]["level"], status) == ("warning", 0)
    monkeypatch.setenv("PUNA_ENGINE", "native")
    found, status = examine(str(path))
    assert (found[str(path)]["level"], status) == ("error", 1)


def test_an_encoder_needs_no_kv(tmp_path):
    found = needs(write_tiny(tmp_path / "bert.gguf", ENCODERS["bert"]))
    assert found["KV memory"].text == "none: texts are read whole"
    assert "KV budget" not in found


def test_a_model_that_is_not_there_or_not_supported(examine, tmp_path):
    assert examine("nothing")[1] == 1
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF")
    found, status = examine(str(path))
    assert (found[str(path)]["level"], status) == ("error", 1)
