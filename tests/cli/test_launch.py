"""`launch` sets environment and flags, and becomes the program."""

from __future__ import annotations

import json
import os

import pytest

pytestmark = pytest.mark.unit


@pytest.fixture
def executed(server, monkeypatch, tmp_path):
    """All three programs are installed; what is executed is noted instead."""
    assert server.port
    calls = []
    for name in ("claude", "codex", "opencode"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    def execve(*call):
        calls.append(call)

    monkeypatch.setattr(os, "execve", execve)
    return calls


def test_claude(server, puna, executed, tmp_path):
    assert puna("launch", "claude", "--model", "m:1", "--", "--print", "hi").status == 0
    [(program, arguments, environment)] = executed
    assert program == str(tmp_path / "claude")
    assert arguments == ["claude", "--model", "m:1", "--print", "hi"]
    assert environment["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:{server.port}"
    assert environment["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == "m:1"
    assert environment["HOME"] == os.environ["HOME"]


def test_codex_and_opencode(server, puna, executed):
    puna("launch", "codex", "--model", "m:1")
    puna("launch", "opencode", "--model", "m:1", "run", "hi")
    (_, codex, codex_environment), (_, opencode, opencode_environment) = executed
    assert codex == ["codex", "--oss", "--local-provider", "ollama", "--model", "m:1"]
    assert codex_environment["CODEX_OSS_BASE_URL"] == f"http://127.0.0.1:{server.port}/v1"
    assert opencode == ["opencode", "run", "hi"]
    config = json.loads(opencode_environment["OPENCODE_CONFIG_CONTENT"])
    assert config["model"] == "puna/m:1"
    assert config["provider"]["puna"]["options"]["baseURL"] == f"http://127.0.0.1:{server.port}/v1"


def test_the_newest_model_that_knows_tools_is_taken(server, puna, executed):
    server.answers["GET", "/api/tags"] = {"models": [{"name": "plain"}, {"name": "able"}]}
    server.answers["POST", "/api/show"] = lambda body: {
        "capabilities": ["tools"] if body["model"] == "able" else []
    }
    puna("launch", "codex")
    assert executed[0][1][-1] == "able"
    server.answers["POST", "/api/show"] = {"capabilities": []}
    assert puna("launch", "codex").err.startswith("Error: no stored model knows tools")


def test_warnings_of_a_model_that_is_too_small(puna, executed):
    result = puna("launch", "codex", "--model", "m")
    assert "m does not know tools" in result.err
    assert "context of 2048 tokens; agents need 32768" in result.err
    assert len(executed) == 1


@pytest.mark.usefixtures("server")
def test_what_is_not_installed_or_not_known(puna, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    result = puna("launch", "codex", "--model", "m")
    assert result.status == 1
    assert result.err.startswith("Error: Codex is not installed (codex is not in PATH): npm install")
    assert puna("launch", "frob").err.startswith("Error: unknown integration 'frob'")
    assert "claude      Claude Code (not installed)" in puna("launch").out


def test_config_is_printed_and_nothing_started(server, puna, executed):
    server.close()
    out = puna("launch", "codex", "--config", "--model", "m:1", "--", "a b").out
    assert out == (
        f"export CODEX_OSS_BASE_URL=http://127.0.0.1:{server.port}/v1\n"
        "codex --oss --local-provider ollama --model m:1 'a b'\n"
    )
    assert executed == []
