"""The daemon's side of an engine worker's process: starting and ending it."""

from __future__ import annotations

from puna.worker.call_client import WorkerDied
from puna.worker.calls import Call
from puna.worker.engine.client import EngineClient
from puna.worker.engine.messages import Ready, Start, WorkerSettings
from puna.worker.process import ChildProcess

_GRACE_S = 2.0
"""How long it may take to end by itself: the rest of a step."""


class WorkerProcess:
    """An engine worker, and the client that speaks to it."""

    def __init__(self, process: ChildProcess, client: EngineClient, ready: Ready) -> None:
        self.client = client
        self.ready = ready
        self._process = process

    @classmethod
    async def start(cls, settings: WorkerSettings) -> WorkerProcess:
        """Waits until the worker is ready. Raises OSError, WorkerDied."""
        return await cls.start_as("puna.worker.engine", Start(settings))

    @classmethod
    async def start_as(cls, module: str, start: Call[Ready]) -> WorkerProcess:
        """The same, of another kind of worker, with its own first message."""
        process, channel = await ChildProcess.spawn(module)
        client = await EngineClient.connect(channel)
        try:
            return cls(process, client, await client.call(start))
        except BaseException as error:
            await client.close()
            if not isinstance(error, Exception):
                await process.end()
                raise
            await process.end(grace_s=_GRACE_S)
            status = await process.wait()
            reason = "" if isinstance(error, WorkerDied) else f": {error}"
            raise WorkerDied(f"the worker process ended at its start, with status {status}{reason}") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """Waits for the end of the process. Its status: negative is a signal's number."""
        return await self._process.wait()

    async def terminate(self) -> None:
        """Ends the process; running requests fail. Does nothing if it has ended."""
        await self.client.close()
        await self._process.end(grace_s=_GRACE_S)
