"""Models of one base with different adapters answer as themselves, side by side, from one copy of weights."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from puna import LLM, SamplingParams
from tests.adapters import linear_tensors, write_adapter
from tests.e2e.launching import MODEL, TIMEOUT_S
from tests.e2e.memory.test_sessions import daemon

pytestmark = pytest.mark.e2e

PROMPT = "The baker opened the shop at six and"
NUM_TOKENS = 12


def upload(http: httpx.Client, path: Path) -> str:
    """Its digest."""
    digest = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    http.post(f"/api/blobs/{digest}", content=path.read_bytes()).raise_for_status()
    return digest


def generate(http: httpx.Client, model: str) -> str:
    body: dict[str, Any] = {"model": model, "prompt": PROMPT, "raw": True, "stream": False}
    options = {"num_predict": NUM_TOKENS, "temperature": 0}
    reply = http.post("/api/generate", json={**body, "options": options}).json()
    return str(reply.get("response") or reply["error"])


def expected(model: Path, adapter: Path | None) -> str:
    with LLM(model, adapter=adapter, num_threads=1) as llm:
        (found,) = llm.generate(PROMPT, max_tokens=NUM_TOKENS, sampling=SamplingParams(temperature=0))
        return found.text


def test_names_with_adapters(models: Path, smollm2_path: Path, tmp_path: Path) -> None:
    query = [name for name in linear_tensors(smollm2_path) if "attn" in name]
    adapters: dict[str, Path | None] = {
        name: write_adapter(tmp_path / name, smollm2_path, query, rank=8, weight_type="F16", seed=seed)
        for seed, name in enumerate(["one", "two"])
    }
    adapters[MODEL] = None
    other = write_adapter(tmp_path / "other", smollm2_path, metadata={"adapter.alora.invocation_tokens": [1]})
    with (
        daemon(models, tmp_path / "sessions") as (url, puna),
        httpx.Client(base_url=url, timeout=TIMEOUT_S) as http,
    ):
        for name, path in {**adapters, "unfit": other}.items():
            if path is not None:
                body = {"model": name, "from": MODEL, "adapters": {"adapter.gguf": upload(http, path)}}
                assert '"success"' in http.post("/api/create", json=body).text
        with ThreadPoolExecutor(4) as threads:
            replies = list(threads.map(lambda name: generate(http, name), [*adapters, "unfit"]))
        assert "aLoRA" in replies.pop()
        assert replies == [expected(smollm2_path, path) for path in adapters.values()]
        assert len(set(replies)) == 3
        loaded = http.get("/api/ps").json()["models"]
        assert {model["name"] for model in loaded} == {"one:latest", "two:latest", MODEL}
        assert len(http.get("/api/kv").json()["models"]) == 1
        puna("stop", "one")
        assert generate(http, "one") == replies[0]
