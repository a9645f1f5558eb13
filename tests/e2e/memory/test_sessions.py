"""A conversation outlives the daemon: saved, restored by another one, and continued from there."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.e2e.launching import MODEL, PUNA, TIMEOUT_S, address_of, launch

pytestmark = pytest.mark.e2e

Puna = Callable[..., str]


@contextmanager
def daemon(models: Path, sessions: Path, **variables: str) -> Iterator[tuple[str, Puna]]:
    """(URL, a function that runs a command and returns what it printed)"""
    directories = {"PUNA_SESSIONS": str(sessions), "PUNA_KV_DIR": str(sessions.parent / "kv")}
    process = launch(models, **directories, **variables)
    try:
        address = address_of(process)
        environ = {**os.environ, "OLLAMA_MODELS": str(models), **directories, **variables}

        def puna(*arguments: str) -> str:
            done = subprocess.run(
                [*PUNA, *arguments],
                env={**environ, "OLLAMA_HOST": address},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TIMEOUT_S,
            )
            return done.stdout

        yield f"http://{address}", puna
    finally:
        process.kill()
        process.communicate()


def chat(url: str, messages: list[dict], **fields: object) -> tuple[dict, dict]:
    """(the reply, its usage)"""
    body = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 12, **fields}
    reply = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=TIMEOUT_S)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["message"], reply.json()["usage"]


def test_a_session_outlives_the_daemon(models, tmp_path):
    question = {"role": "user", "content": "The quick brown fox jumps over the lazy dog. " * 8}
    with daemon(models, tmp_path) as (url, puna):
        assert "is not in memory" in puna("session", "save", MODEL, "work")
        answer, first_usage = chat(url, [question], session="work")
        said = puna("session", "save", MODEL, "work")
        assert re.search(r"saved session 'work' of smollm2:135m: \d+ tokens", said)
        conversation = [question, answer, {"role": "user", "content": "And then?"}]
        expected, _ = chat(url, conversation, cache_prompt=False)
    with daemon(models, tmp_path) as (url, puna):
        assert re.search(r"work +smollm2:135m +\d+ .* on disk ", puna("session", "list"))
        assert "loaded session 'work'" in puna("session", "load", MODEL, "work")
        assert "in memory" in puna("session", "list")
        again, usage = chat(url, conversation)
        assert again == expected
        assert usage["prompt_tokens_details"]["cached_tokens"] >= first_usage["prompt_tokens"]
        assert puna("session", "rm", MODEL, "work") == "deleted session 'work'\n"
        assert len(puna("session", "list").splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_another_kv_type_is_refused_by_name(models, tmp_path):
    with daemon(models, tmp_path) as (url, puna):
        chat(url, [{"role": "user", "content": "Hello"}], session="work")
        puna("session", "save", MODEL, "work")
    with daemon(models, tmp_path, OLLAMA_KV_CACHE_TYPE="q8_0") as (_, puna):
        refusal = "Error: the session was saved with another KV cache type: f16, not q8_0\n"
        assert puna("session", "load", MODEL, "work") == refusal
