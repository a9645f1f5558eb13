"""`puna kv` on a daemon that is busy."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.launching import MODEL, TIMEOUT_S, eventually
from tests.e2e.memory.test_sessions import Puna, daemon

pytestmark = pytest.mark.e2e

MIB = 1 << 20


@pytest.fixture
def busy(models: Path, tmp_path: Path) -> Iterator[tuple[str, Puna]]:
    with daemon(
        models, tmp_path / "sessions", OLLAMA_KVCACHED_MEMORY_GB="64MiB", PUNA_KV_IDLE="5m"
    ) as started:
        yield started


def generate(url: str, num_predict: int) -> dict[str, Any]:
    options = {"num_predict": num_predict, "temperature": 0}
    body = {"model": MODEL, "prompt": "Count:", "raw": True, "stream": False, "options": options}
    return httpx.post(f"{url}/api/generate", json=body, timeout=TIMEOUT_S).json()


def memory(url: str) -> dict[str, Any]:
    return httpx.get(f"{url}/api/kv", timeout=TIMEOUT_S).json()


def test_a_limit_below_what_is_in_use(busy: tuple[str, Puna]):
    url, puna = busy
    replies: list[dict[str, Any]] = []
    request = threading.Thread(target=lambda: replies.append(generate(url, 2000)))
    request.start()
    eventually(lambda: sum(model["used"] for model in memory(url)["models"]) > 4 * MIB)
    assert puna("kv", "limit", "1MiB").startswith("limit of KV: 1 MiB, ")
    request.join()
    assert "error" in replies[0]  # it could not go on with two blocks
    assert memory(url)["committed"] <= MIB

    assert puna("kv", "limit", "64mb").startswith("limit of KV: 64 MiB, ")
    assert generate(url, 40)["eval_count"] == 40
    stats = json.loads(puna("kv", "stats", "--json"))
    assert stats.keys() == memory(url).keys()
    assert stats["committed"] >= stats["models"][0]["cached"] > 0
    assert MODEL in puna("kv", "top")
    assert puna("kv", "trim").startswith("gave back ")
    assert memory(url)["committed"] == 0


def test_nonsense(busy: tuple[str, Puna]):
    url, puna = busy
    assert puna("kv", "limit", "much") == 'Error: "much" is not a size (try 12GiB)\n'
    assert memory(url)["kv_limit"] == 64 * MIB
