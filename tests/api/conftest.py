"""An app over a fake runtime, and a client that speaks to it without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from puna.api.app import create_app
from puna.config.settings import Settings
from puna.registry import Layer, Manifest, ModelName, Store
from puna.registry.creation.from_gguf import create_from_gguf
from puna.registry.store.manifest import CONFIG_TYPE, LAYER_TYPE
from tests.api.fake_runtime import FakeRuntime
from tests.api.ggufs import CALLING, CHATML, THINKING, write_gguf
from tests.daemon.fake_sessions import write_key
from tests.descriptions import TINY_WEIGHTS


class Client:
    """One request at a time, each in an event loop of its own; bodies are JSON unless they are bytes."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:11434") as client:
                return await client.request(method, path, content=content, headers=headers)

        return asyncio.run(send())

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        return self.request("POST", path, body, **headers)

    def lines(self, path: str, body: Any) -> list[dict]:
        """The objects of an NDJSON stream."""
        response = self.post(path, body)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "application/x-ndjson"
        assert response.text.endswith("\n")
        return [json.loads(line) for line in response.text.splitlines()]

    def events(self, path: str, body: Any) -> list[Any]:
        """The data of a stream of server-sent events; `[DONE]` stays text."""
        response = self.post(path, body)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        frames = response.text.split("\n\n")
        assert frames.pop() == ""
        datas = [frame.removeprefix("data: ") for frame in frames]
        return [data if data == "[DONE]" else json.loads(data) for data in datas]


@pytest.fixture(scope="session")
def gguf_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("gguf")
    return {
        "plain": write_gguf(directory / "plain.gguf"),
        "caller": write_gguf(directory / "caller.gguf", template=CALLING),
        "thinker": write_gguf(directory / "thinker.gguf", template=THINKING),
        "wrong": write_gguf(directory / "wrong.gguf", template="{% nonsense %}"),
        "bare": write_gguf(directory / "bare.gguf", template=None),
        "filler": write_gguf(directory / "filler.gguf", fill_in=True),
        "seer": write_gguf(directory / "seer.gguf", fill_in=True, **{"vision.block_count": 1}),
        "embedder": write_gguf(directory / "embedder.gguf", pooling_type=1),
        "small": write_gguf(directory / "small.gguf", template=CHATML, context=64),
    }


AddModel = Callable[..., None]


@pytest.fixture
def runtime(tmp_path: Path) -> FakeRuntime:
    return FakeRuntime(
        Settings(
            models=tmp_path / "store", sessions=tmp_path / "sessions", state_key=write_key(tmp_path / "key")
        )
    )


@pytest.fixture
def add_model(runtime: FakeRuntime, gguf_files: dict[str, Path]) -> AddModel:
    """add_model("name", "plain", system="...", params={...}): stores a model with these layers.

    config: in place of what is usual.
    """

    def add(name: str, file: str = "plain", config: Mapping[str, Any] | None = None, **layers: Any) -> None:
        store: Store = runtime.store
        digest = store.add_blob([gguf_files[file].read_bytes()])
        manifest = create_from_gguf(store, ModelName.parse(name), digest, TINY_WEIGHTS).manifest
        extra = []
        for kind, content in layers.items():
            data = content.encode() if isinstance(content, str) else msgspec.json.encode(content)
            extra.append(Layer(LAYER_TYPE + kind, store.add_blob([data]), len(data)))
        config_layer = manifest.config
        if config is not None:
            data = msgspec.json.encode(config)
            config_layer = Layer(CONFIG_TYPE, store.add_blob([data]), len(data))
        store.write_manifest(
            ModelName.parse(name), Manifest(config=config_layer, layers=[*manifest.layers, *extra])
        )

    return add


@pytest.fixture
def client(runtime: FakeRuntime, add_model: AddModel) -> Client:
    """Knows one model: `m`."""
    add_model("m")
    return Client(create_app(runtime))
