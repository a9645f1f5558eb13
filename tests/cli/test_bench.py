"""`puna bench` on a tiny model: the table, JSON, and what goes wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from puna.bench import machine, measure
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_SECONDS", 0.001)
    monkeypatch.setattr(machine, "_READ_BYTES", 1 << 20)
    monkeypatch.setattr(measure, "_MIN_STEPS", 2)
    monkeypatch.setattr(measure, "_MAX_STEPS", 2)
    monkeypatch.setattr(measure, "_MAX_PROMPTS", 2)
    monkeypatch.setenv("PUNA_NUM_THREADS", "1")
    monkeypatch.setenv("OLLAMA_KVCACHED_MEMORY_GB", "64MiB")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(write_tiny(tmp_path / "tiny.gguf", TINY["llama"]))


def test_table(server, puna, path):
    server.answers["GET", "/api/ps"] = {"models": []}
    result = puna("bench", path)
    assert (result.status, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].startswith(f"{path} with 1 threads (")
    assert lines[3].split() == ["WORK", "TOKENS/S", "GOP/S", "OF", "PEAK", "GB/S", "OF", "MEMORY"]
    assert [line[:19].strip() for line in lines[4:]] == [
        "prefill, 512 tokens",
        "decode, 1 stream",
        "decode, 4 streams",
        "decode, 16 streams",
    ]


def test_json(server, puna, path):
    report = json.loads(puna("bench", path, "--json").out)
    assert report["machine"]["num_threads"] == 1
    assert report["roofs"]["bytes_per_second"] > 0
    assert report["results"][0]["work"] == {"kind": "prefill", "batch": 1, "context": 0}
    assert server.requests[0][1] == "/api/ps"


def test_a_busy_server_is_named(server, puna, path):
    server.answers["GET", "/api/ps"] = {"models": [{"name": "a:1"}, {"name": "b:1"}]}
    assert "a:1, b:1 loaded" in puna("bench", path).err


def test_no_server_is_needed(puna, path, monkeypatch):
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    assert puna("bench", path).status == 0


def test_info(puna):
    out = puna("bench", "--info").out
    assert [line.split("  ")[0] for line in out.splitlines()] == [
        "processor",
        "threads",
        "instruction set",
        "features",
        "memory",
    ]
    assert json.loads(puna("bench", "--info", "--json").out)["num_threads"] == 1


def test_errors(server, puna, tmp_path):
    assert server.port
    assert puna("bench").err == "Error: bench needs a MODEL, or --info\n"
    assert "model 'nothing:latest' not found" in puna("bench", "nothing").err
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    result = puna("bench", str(tmp_path / "bad.gguf"))
    assert result.status == 1
    assert result.err.startswith("Error: ")
