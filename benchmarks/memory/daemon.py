"""What the scenarios ask of puna's daemon besides answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from benchmarks.servers.watching import wait_until

_TIMEOUT_S = 60
_PATIENCE_S = 20


class ModelKv(msgspec.Struct):
    """One model of GET /api/kv; bytes."""

    name: str
    committed: int
    used: int
    cached: int


class KvState(msgspec.Struct):
    """What is wanted of GET /api/kv; bytes."""

    kv_limit: int
    committed: int
    leased: int
    models: list[ModelKv]

    def committed_of(self, model: str) -> int:
        """0 for a model that is not loaded."""
        return sum(m.committed for m in self.models if m.name == model)


@dataclass(frozen=True)
class Daemon:
    url: str

    def kv(self) -> KvState:
        return msgspec.json.decode(self._get("/api/kv"), type=KvState)

    def set_kv_limit(self, num_bytes: int) -> None:
        self._post("/api/kv/limit", {"kv_limit": num_bytes})

    def trim(self) -> None:
        """Gives back all KV memory that no request needs now."""
        self._post("/api/kv/trim", {})

    def resident(self) -> list[str]:
        """Names of the models that can answer at once."""
        return [model["name"] for model in msgspec.json.decode(self._get("/api/ps"))["models"]]

    def load(self, model: str) -> None:
        self._post("/api/generate", {"model": model})

    def unload(self, model: str) -> None:
        """For good; returns when it is."""
        self._post("/api/generate", {"model": model, "keep_alive": 0})
        wait_until(lambda: model not in self.resident(), _PATIENCE_S, f"{model} is still there")

    def _get(self, path: str) -> bytes:
        reply = httpx.get(f"{self.url}{path}", timeout=_TIMEOUT_S, trust_env=False)
        return reply.raise_for_status().content

    def _post(self, path: str, body: dict[str, Any]) -> None:
        httpx.post(f"{self.url}{path}", json=body, timeout=_TIMEOUT_S, trust_env=False).raise_for_status()
