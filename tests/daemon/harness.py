"""A runtime whose worker and text workers are fakes; the store is real."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from puna.config.settings import Settings
from puna.daemon.runtime import ResidentModel, Runtime
from puna.engine.request import Request, StepOutput
from puna.registry import ModelName
from puna.registry.creation.from_gguf import create_from_gguf
from puna.registry.store.manifest import LAYER_TYPE, Layer
from puna.tokenizer import Tokenizer
from tests.daemon.fake_sessions import write_key
from tests.daemon.fake_text import FakeTextPool
from tests.daemon.fake_worker import Servers, Workshop
from tests.descriptions import TINY_WEIGHTS


class Daemon(Workshop):
    """A runtime whose worker is fake."""

    def __init__(self, root: Path, **settings) -> None:
        super().__init__(start_s=0.0, sessions=root.parent / "sessions")
        self.text = FakeTextPool()
        self.servers = Servers()
        self.runtime = Runtime(
            Settings(
                models=root,
                sessions=root.parent / "sessions",
                state_key=write_key(root.parent / "key"),
                **settings,
            ),
            spawn=self.spawn,
            text=self.text,
            spawn_server=self.servers.spawn_with,
        )
        self.store = self.runtime.store

    def add(self, name: str, data: bytes) -> None:
        create_from_gguf(self.store, ModelName.parse(name), self.store.add_blob([data]), TINY_WEIGHTS)

    def add_adapted(self, name: str, base: str, adapter: bytes) -> None:
        """A name with the weights of another, and an adapter."""
        layer = Layer(LAYER_TYPE + "adapter", self.store.add_blob([adapter]), len(adapter))
        manifest = self.store.find(ModelName.parse(base)).manifest
        manifest = replace(manifest, layers=[*manifest.layers, layer])
        self.store.write_manifest(ModelName.parse(name), manifest)

    async def names(self):
        return [status.name for status in await self.runtime.loaded()]

    async def say(self, name, prompt):
        async with self.runtime.resident(name) as model:
            return await self.continue_text(model, prompt)

    async def continue_text(self, model: ResidentModel, text: str) -> str:
        """What the fake worker gives back of the text."""
        tokenizer = Tokenizer.from_descriptor(model.text.vocabulary)
        outputs = await self.generate(model, prompt=tokenizer.encode(text, add_special=False))
        return tokenizer.decode([token for output in outputs for token in output.tokens])

    def request(self, model: ResidentModel, **fields: Any) -> Request:
        return Request(id=self.runtime.new_request_id(), model_id=model.model.weights_id, **fields)

    async def generate(self, model: ResidentModel, **fields: Any) -> list[StepOutput]:
        async with self.runtime.stream(self.request(model, **fields)) as outputs:
            return [output async for output in outputs]


def run(main, *daemons: Daemon) -> None:
    async def body():
        try:
            await main()
        finally:
            for each in daemons:
                await each.runtime.close()

    asyncio.run(body())


async def until(condition) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
