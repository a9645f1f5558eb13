"""A long prefix is read back, not computed again: after an unload, after idle time, in the next daemon."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.e2e.launching import MODEL, TIMEOUT_S, address_of, launch

pytestmark = pytest.mark.e2e

TEXT = "The quick brown fox jumps over the lazy dog. " * 40


@contextmanager
def daemon(models: Path, kv_dir: Path, **variables: str) -> Iterator[str]:
    """Its URL. Ends it politely."""
    process = launch(models, PUNA_KV_DIR=str(kv_dir), **variables)
    try:
        yield f"http://{address_of(process)}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()


def complete(url: str, prompt: str = TEXT) -> tuple[str, int]:
    """(text, prompt tokens that were cached)"""
    body = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 12}
    reply = httpx.post(f"{url}/v1/completions", json=body, timeout=TIMEOUT_S)
    assert reply.status_code == 200, reply.text
    usage = reply.json()["usage"]
    return reply.json()["choices"][0]["text"], (usage.get("prompt_tokens_details") or {}).get(
        "cached_tokens", 0
    )


def unload(url: str) -> None:
    httpx.post(f"{url}/api/generate", json={"model": MODEL, "keep_alive": 0}, timeout=TIMEOUT_S)
    while httpx.get(f"{url}/api/ps", timeout=TIMEOUT_S).json()["models"]:
        time.sleep(0.02)


def test_a_prefix_outlives_model_and_daemon(models, tmp_path):
    with daemon(models, tmp_path) as url:
        text, cached = complete(url)
        assert cached == 0
        unload(url)
        again, cached = complete(url)
        assert again == text
        assert cached >= 380
    assert not list(tmp_path.rglob("*.tmp"))
    with daemon(models, tmp_path) as url:
        assert complete(url) == (text, cached)
        branched = complete(url, TEXT + "And")
    with daemon(models, tmp_path, PUNA_KV_DISK="0") as url:
        assert complete(url) == (text, 0)
        unload(url)
        assert complete(url, TEXT + "And") == (branched[0], 0)


def test_another_kv_type_computes_its_own(models, tmp_path):
    with daemon(models, tmp_path) as url:
        complete(url)
    with daemon(models, tmp_path, OLLAMA_KV_CACHE_TYPE="q8_0") as url:
        assert complete(url)[1] == 0


def test_deleting_a_model_erases_its_prefixes(models, tmp_path):
    with daemon(models, tmp_path) as url:
        complete(url)
        unload(url)
        copy = {"source": MODEL, "destination": "copy"}
        assert httpx.post(f"{url}/api/copy", json=copy, timeout=TIMEOUT_S).status_code == 200
        for name, is_last in (("copy", False), (MODEL, True)):
            deleted = httpx.request("DELETE", f"{url}/api/delete", json={"model": name}, timeout=TIMEOUT_S)
            assert deleted.status_code == 200
            assert bool(list(tmp_path.rglob("*.kv"))) is not is_last
