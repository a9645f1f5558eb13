"""Two models that do not fit together take turns, and each is as it was when it wakes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from puna.registry import ModelName, Store
from puna.registry.creation.from_gguf import create_from_gguf
from tests.descriptions import SMOLLM2_WEIGHTS
from tests.e2e.launching import TIMEOUT_S
from tests.e2e.memory.test_sessions import Puna, daemon

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def models(tmp_path_factory, smollm2_path) -> Path:
    """The same model twice: a byte behind the tensors makes another file."""
    store = Store(tmp_path_factory.mktemp("models"))
    for name in ("one", "two"):
        digest = store.add_blob([smollm2_path.read_bytes(), name.encode()])
        create_from_gguf(store, ModelName.parse(name), digest, SMOLLM2_WEIGHTS)
    return store.root


@pytest.fixture
def narrow(models: Path, tmp_path: Path) -> Iterator[tuple[str, Puna]]:
    with daemon(models, tmp_path / "sessions", PUNA_MEMORY_LIMIT="160MiB") as started:
        yield started


def body(model: str, num_predict: int, stream: bool) -> dict[str, Any]:
    options = {"num_predict": num_predict, "temperature": 0}
    return {"model": model, "prompt": "Count:", "raw": True, "stream": stream, "options": options}


def generate(url: str, model: str, num_predict: int = 8) -> dict[str, Any]:
    return httpx.post(
        f"{url}/api/generate", json=body(model, num_predict, stream=False), timeout=TIMEOUT_S
    ).json()


def states(url: str) -> dict[str, str]:
    models = httpx.get(f"{url}/api/kv", timeout=TIMEOUT_S).json()["models"]
    return {model["name"]: model["state"] for model in models}


def test_they_take_turns(narrow):
    url, puna = narrow
    replies = [generate(url, name)["response"] for name in ("one", "two", "one", "two")]
    assert len(set(replies)) == 1
    assert states(url) == {"one:latest": "asleep", "two:latest": "resident"}
    lines = puna("ps").splitlines()
    assert lines[0].split() == ["NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "KV", "CACHED", "UNTIL"]
    assert len(lines) == 2
    assert re.match(r"two:latest .* \d+ MB +100% CPU +\d+ .* 4 minutes from now", lines[1])
    puna("stop", "one")
    assert states(url) == {"two:latest": "resident"}


def test_beside_a_busy_one_there_is_no_room_and_nothing_else_suffers(narrow):
    url, _ = narrow
    alone = generate(url, "one", 200)["response"]
    request = body("one", 200, stream=True)
    with httpx.stream("POST", f"{url}/api/generate", json=request, timeout=TIMEOUT_S) as reply:
        lines = reply.iter_lines()
        first = next(lines)
        refusal = generate(url, "two")["error"]
        text = "".join(json.loads(line)["response"] for line in [first, *lines])
    assert refusal.startswith("two:latest needs ")
    assert "the memory limit is 160 MiB: one:latest holds 92." in refusal
    assert text == alone
    assert generate(url, "two")["response"]
