"""A worker server with toy models, in a thread of the test, and a client connected to it."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, chdir, contextmanager
from pathlib import Path

from puna.backends.base import ModelInfo, ModelSource
from puna.engine import EngineCore, EngineSettings, Request, StepOutput
from puna.worker.calls import CallServer, open_channel
from puna.worker.engine.client import EngineClient
from puna.worker.engine.messages import CROSSING, Load, ToWorker
from puna.worker.engine.server import EngineServer
from tests.engine.toy import BLOCK_BYTES, ToyBackend, ToyModel

NUM_BLOCKS = 1000


class SlowBackend(ToyBackend):
    """A model named 9 is loaded only once `gate` is open; one named 13 is a bug."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.models: list[ToyModel] = []
        self.weight_bytes = 0
        """Of models that are loaded later."""

    def load(self, source: ModelSource) -> ToyModel:
        if source.name == "9":
            assert self.gate.wait(60)
        if source.name == "13":
            raise KeyError("bug")
        # Without a limit, a request fills the memory: more than any test waits for.
        salt = super().load(source).salt
        self.models.append(ToyModel(salt, context_length=1_000_000, weight_bytes=self.weight_bytes))
        return self.models[-1]


class Served:
    def __init__(self, backend: SlowBackend, engine: EngineCore, client: EngineClient) -> None:
        self.backend = backend
        self.engine = engine
        self.client = client


@contextmanager
def _toy_files() -> Iterator[None]:
    """Files of the models that tests load, in the current directory."""
    with tempfile.TemporaryDirectory() as directory, chdir(directory):
        for name in ("0", "1", "9", "13", "nonsense", "\udcff.gguf"):
            Path(name).touch()
        yield


@asynccontextmanager
async def served(num_blocks: int = NUM_BLOCKS, **settings: object) -> AsyncIterator[Served]:
    """Asserts at the end that the server has ended and gave everything back."""
    backend = SlowBackend()
    engine = EngineCore(
        backend, EngineSettings(kv_limit_bytes=num_blocks * BLOCK_BYTES, state_key=bytes(32), **settings)
    )
    ours, theirs = open_channel()
    server = threading.Thread(target=EngineServer(engine, CallServer(theirs, ToWorker, CROSSING)).run)
    server.start()
    client = await EngineClient.connect(ours)
    try:
        with _toy_files():
            yield Served(backend, engine, client)
    finally:
        backend.gate.set()
        await client.close()
        await asyncio.to_thread(server.join)
    engine.check()
    assert engine.stats().models == []
    backend.close()


async def load(
    client: EngineClient, model_id: str, path: Path, share: float = 1.0, guaranteed_kv_bytes: int = 0
) -> ModelInfo:
    with ModelSource.open(path) as source:
        message = Load(model_id, source.name, share, guaranteed_kv_bytes)
        return await client.call(message, source.descriptors)


async def outputs_of(client: EngineClient, request: Request) -> AsyncGenerator[StepOutput, None]:
    async with client.stream(request) as outputs:
        async for output in outputs:
            yield output


async def generate(client: EngineClient, request: Request) -> list[int]:
    return [token async for output in outputs_of(client, request) for token in output.tokens]
