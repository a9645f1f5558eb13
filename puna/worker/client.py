"""The daemon's side of the connection: an asyncio client."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from puna.backends.base import ModelInfo, ModelLoadError
from puna.engine.request import EngineStats, Request, StepOutput
from puna.engine.resident import ModelDoesNotFit
from puna.engine.sessions import SessionError, SessionStatus, UnknownSession
from puna.engine.trace import EngineTrace
from puna.kv.checkpoint import CheckpointError, CheckpointMismatch
from puna.worker.protocol import (
    HEADER,
    Cancel,
    EndLease,
    FromWorker,
    GetStats,
    GetTrace,
    Lease,
    Leased,
    LimitsSet,
    ListSessions,
    Load,
    Loaded,
    LoadFailed,
    LoadSession,
    MemoryReply,
    Outputs,
    PrefixesSaved,
    ProtocolError,
    Ready,
    RemoveSession,
    SavePrefixes,
    SaveSession,
    SessionDone,
    SessionFailed,
    SessionFailure,
    SessionList,
    SessionRemoved,
    SessionReply,
    SetLimits,
    Sleep,
    Slept,
    Stats,
    Submit,
    ToWorker,
    Trace,
    TrimKv,
    Trimmed,
    Unload,
    Unloaded,
    Wake,
    decode,
    encode,
    payload_bytes,
)

log = logging.getLogger(__name__)

_Reply = Loaded | LoadFailed | Slept | Unloaded | Stats | Trace | PrefixesSaved | MemoryReply | SessionReply

_SESSION_ERRORS: dict[SessionFailure, type[Exception]] = {
    "unknown": UnknownSession,
    "refused": SessionError,
    "mismatch": CheckpointMismatch,
    "file": CheckpointError,
}


class WorkerDied(RuntimeError):
    """The worker process has ended, or never began."""

    def __init__(self, text: str = "the worker process has ended unexpectedly") -> None:
        super().__init__(text)


class WorkerClient:
    """Speaks to a worker over a connected socket. Every method raises WorkerDied once that is closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        self._reader = reader
        self._writer = writer
        self._ready: asyncio.Future[None] = loop.create_future()
        self._calls: dict[int, asyncio.Future[_Reply]] = {}
        self._next_call = itertools.count()
        self._streams: dict[str, asyncio.Queue[StepOutput | None]] = {}  # None: the worker died
        self._alive = True
        self._receiver = loop.create_task(self._receive())

    @classmethod
    async def connect(cls, connection: socket.socket) -> WorkerClient:
        """Waits until the worker is ready. The socket then belongs to the client. Raises WorkerDied."""
        client = cls(*await asyncio.open_unix_connection(sock=connection))
        try:
            await client._ready
        except BaseException:
            await client.close()
            raise
        return client

    async def load(
        self, model_id: str, path: Path, weight: float = 1.0, minimum_kv_bytes: int = 0
    ) -> ModelInfo:
        """weight: its share of the device when others are busy, too; minimum_kv_bytes: KV memory that it is
        sure of. Raises ModelLoadError; ModelDoesNotFit if memory is short.
        """
        call = next(self._next_call)
        message = Load(call, model_id, os.fsencode(path), weight, minimum_kv_bytes)
        return _loaded(await self._request(call, message))

    async def sleep(self, model_id: str) -> None:
        """As unload(), but wake() has it back at once."""
        call = next(self._next_call)
        await self._request(call, Sleep(call, model_id))

    async def wake(self, model_id: str) -> ModelInfo:
        """Raises ModelLoadError; the model then sleeps on."""
        call = next(self._next_call)
        return _loaded(await self._request(call, Wake(call, model_id)))

    async def unload(self, model_id: str) -> None:
        """Requests of the model finish with an error."""
        call = next(self._next_call)
        await self._request(call, Unload(call, model_id))

    async def stats(self) -> EngineStats:
        call = next(self._next_call)
        reply = await self._request(call, GetStats(call))
        assert isinstance(reply, Stats)
        return reply.stats

    async def trace(self, seconds: float | None = None) -> EngineTrace:
        """What the engine did in the last `seconds`; None: as far back as it knows."""
        call = next(self._next_call)
        reply = await self._request(call, GetTrace(call, seconds))
        assert isinstance(reply, Trace)
        return reply.trace

    async def set_limits(self, kv_limit_bytes: int | None, memory_limit_bytes: int | None) -> int:
        """None: as before. Returns by how many bytes what is in use exceeds the new limits."""
        call = next(self._next_call)
        reply = await self._request(call, SetLimits(call, kv_limit_bytes, memory_limit_bytes))
        assert isinstance(reply, LimitsSet)
        return reply.excess_bytes

    async def lease(self, num_bytes: int, *, is_held: bool = False) -> Leased:
        """Memory of the budget for somebody outside the worker.

        is_held: they have it already, from an earlier worker; it is counted whatever the limits are.
        """
        call = next(self._next_call)
        reply = await self._request(call, Lease(call, num_bytes, is_held))
        assert isinstance(reply, Leased)
        return reply

    async def end_lease(self, num_bytes: int) -> None:
        """So much of what was leased is free again."""
        call = next(self._next_call)
        await self._request(call, EndLease(call, num_bytes))

    async def trim_kv(self) -> int:
        """Gives back all KV memory that no request needs now; how many bytes."""
        call = next(self._next_call)
        reply = await self._request(call, TrimKv(call))
        assert isinstance(reply, Trimmed)
        return reply.freed_bytes

    async def sessions(self) -> list[SessionStatus]:
        """Those in memory, or that were there."""
        call = next(self._next_call)
        reply = await self._request(call, ListSessions(call))
        assert isinstance(reply, SessionList)
        return reply.sessions

    async def save_prefixes(self) -> None:
        """Before the worker ends: has it keep on disk what it has cached."""
        call = next(self._next_call)
        await self._request(call, SavePrefixes(call))

    async def save_session(self, model_id: str, name: str, path: Path) -> None:
        """Raises SessionError, CheckpointError."""
        call = next(self._next_call)
        await self._transfer(call, SaveSession(call, model_id, name, os.fsencode(path)))

    async def load_session(self, model_id: str, name: str, path: Path) -> None:
        """Raises SessionError, CheckpointError."""
        call = next(self._next_call)
        await self._transfer(call, LoadSession(call, model_id, name, os.fsencode(path)))

    async def remove_session(self, model_id: str, name: str) -> bool:
        """From memory; False if it was not there."""
        call = next(self._next_call)
        reply = await self._request(call, RemoveSession(call, model_id, name))
        assert isinstance(reply, SessionRemoved)
        return reply.found

    async def generate(self, request: Request) -> AsyncGenerator[StepOutput, None]:
        """The request's outputs, until one has a finish_reason. Closing the generator cancels the request."""
        assert request.id not in self._streams, f"request {request.id} is already running"
        outputs = self._streams[request.id] = asyncio.Queue()
        finished = False
        try:
            self._send(Submit(request))
            while not finished:
                output = await outputs.get()
                if output is None:
                    raise WorkerDied
                finished = output.finish_reason is not None
                yield output
        finally:
            del self._streams[request.id]
            if not finished:
                with suppress(WorkerDied):
                    self._send(Cancel(request.id))

    async def cancel(self, request_id: str) -> None:
        """Asks for a request's end; its last output then says "cancelled", if it was not finished before."""
        self._send(Cancel(request_id))

    async def close(self) -> None:
        """The worker ends when it sees the connection closed."""
        self._receiver.cancel()
        await asyncio.gather(self._receiver, return_exceptions=True)
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _transfer(self, call: int, message: SaveSession | LoadSession) -> None:
        reply = await self._request(call, message)
        if isinstance(reply, SessionFailed):
            raise _SESSION_ERRORS[reply.kind](reply.error)
        assert isinstance(reply, SessionDone)

    async def _request(self, call: int, message: ToWorker) -> _Reply:
        reply: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        self._calls[call] = reply
        try:
            self._send(message)
            return await reply
        finally:
            del self._calls[call]

    def _send(self, message: ToWorker) -> None:
        # A transport may be closed before the receiver has seen the end; uvloop's then refuses to write.
        if not self._alive or self._writer.is_closing():
            raise WorkerDied
        self._writer.write(encode(message))

    async def _receive(self) -> None:
        decoder = msgspec.msgpack.Decoder(FromWorker)
        try:
            while True:
                length = payload_bytes(await self._reader.readexactly(HEADER.size))
                self._dispatch(decode(await self._reader.readexactly(length), decoder))
        except (OSError, asyncio.IncompleteReadError):
            pass  # ends with the worker, in the middle of a frame if it was killed
        except ProtocolError as error:
            log.error("worker: %s", error)
        finally:
            self._fail_everything()

    def _dispatch(self, message: FromWorker) -> None:
        match message:
            case Outputs(outputs):
                for output in outputs:
                    if stream := self._streams.get(output.request_id):  # none: cancelled
                        stream.put_nowait(output)
            case Ready():
                self._ready.set_result(None)
            case _:
                if (reply := self._calls.get(message.call)) and not reply.done():
                    reply.set_result(message)

    def _fail_everything(self) -> None:
        self._alive = False
        futures: list[asyncio.Future[Any]] = [self._ready, *self._calls.values()]
        for future in futures:
            if not future.done():
                future.set_exception(WorkerDied())
        for stream in self._streams.values():
            stream.put_nowait(None)


def _loaded(reply: _Reply) -> ModelInfo:
    if isinstance(reply, LoadFailed):
        raise ModelLoadError(reply.error) if reply.shortage is None else ModelDoesNotFit(reply.shortage)
    assert isinstance(reply, Loaded)
    return reply.info
