"""The daemon's side of an engine worker: calls, and the outputs of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from puna.engine.memory.offers import Short
from puna.engine.request import Request, StepOutput
from puna.worker.call_client import CallClient, WorkerDied
from puna.worker.calls import Call, Channel
from puna.worker.engine.messages import CROSSING, Cancel, EngineEvent, Hold, Outputs, Pause, Submit

R = TypeVar("R")

_MAX_UNREAD = 64
"""Outputs of a request; with more, it is paused until half of them are read."""


class EngineClient:
    """Speaks to an engine worker. Every method raises WorkerDied once the worker is gone."""

    def __init__(self) -> None:
        self.on_short: Callable[[Short], None] = lambda _: None
        self._streams: dict[str, OutputStream] = {}
        self._calls: CallClient

    @classmethod
    async def connect(cls, channel: Channel) -> EngineClient:
        """The channel then belongs to the client."""
        client = cls()
        client._calls = await CallClient.connect(
            channel, crossing=CROSSING, events=EngineEvent, on_event=client._deliver, on_end=client._end
        )
        return client

    async def call(self, message: Call[R], descriptors: Sequence[int] = ()) -> R:
        """See CallClient.call()."""
        return await self._calls.call(message, descriptors)

    def tell(self, message: Hold) -> None:
        """Sends a message that has no answer."""
        self._calls.tell(message)

    def stream(self, request: Request) -> OutputStream:
        """The request's outputs; it is submitted when the stream is entered."""
        return OutputStream(self, request)

    async def close(self) -> None:
        """The worker ends when it sees the connection closed."""
        await self._calls.close()

    def _deliver(self, event: EngineEvent) -> None:
        if isinstance(event, Short):
            self.on_short(event)
        else:
            self._deliver_outputs(event)

    def _deliver_outputs(self, message: Outputs) -> None:
        for output in message.outputs:
            if stream := self._streams.get(output.request_id):  # none: its reader has gone
                stream.outputs.put_nowait(output)
                if stream.outputs.qsize() == _MAX_UNREAD:
                    self.pause(stream, paused=True)

    def _end(self) -> None:
        for stream in self._streams.values():
            stream.outputs.put_nowait(None)

    def begin(self, stream: OutputStream) -> None:
        """For OutputStream."""
        request = stream.request
        assert request.id not in self._streams, f"request {request.id} is already running"
        self._calls.tell(Submit(request))
        self._streams[request.id] = stream

    def pause(self, stream: OutputStream, *, paused: bool) -> None:
        """For OutputStream."""
        stream.is_paused = paused
        with suppress(WorkerDied):
            self._calls.tell(Pause(stream.request.id, paused))

    def finish(self, stream: OutputStream, *, cancel: bool) -> None:
        """For OutputStream."""
        if self._streams.pop(stream.request.id, None) is not None and cancel:
            with suppress(WorkerDied):
                self._calls.tell(Cancel(stream.request.id))


class OutputStream:
    """Outputs of one request, step by step, until one has a finish_reason.

    To be used in an `async with`: leaving it cancels the request, if it is not finished.
    """

    def __init__(self, client: EngineClient, request: Request) -> None:
        self.request = request
        self.outputs: asyncio.Queue[StepOutput | None] = asyncio.Queue()  # None: the worker died
        self.is_paused = False
        self._client = client
        self._is_finished = False

    async def __aenter__(self) -> OutputStream:
        self._client.begin(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.finish(self, cancel=not self._is_finished)

    def __aiter__(self) -> OutputStream:
        return self

    async def __anext__(self) -> StepOutput:
        """Raises WorkerDied."""
        if self._is_finished:
            raise StopAsyncIteration
        output = await self.outputs.get()
        if self.is_paused and self.outputs.qsize() <= _MAX_UNREAD // 2:
            self._client.pause(self, paused=False)
        if output is None:
            raise WorkerDied
        self._is_finished = output.finish_reason is not None
        return output
