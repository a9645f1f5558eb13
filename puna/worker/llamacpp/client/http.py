"""The HTTP that is spoken with llama.cpp's server, on connections that others make."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from typing import Any

import httpcore
import msgspec

from puna.worker.llamacpp.client.completions import Chunk, Failure

_DATA = b"data: "
_ERROR = b"error: "
_MAX_BYTES = 32 << 20
"""Of one event, or of a reply that is no stream."""
_POLL_S = 0.02
_REFUSALS = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_IMPLEMENTED)
"""The latter: of an embedding to a server that gives text, and of text to one that gives embeddings."""

_chunks = msgspec.json.Decoder(Chunk)


class ServerError(RuntimeError):
    """The server refused a request, or its reply is none; the text is the server's."""

    def __init__(self, text: str, *, is_refused: bool = False) -> None:
        """is_refused: for what it asks."""
        super().__init__(text)
        self.is_refused = is_refused


class _Refusal(msgspec.Struct, frozen=True):
    error: Failure = Failure()


Connect = Callable[[], Awaitable[socket.socket]]


class ServerClient:
    """Speaks to one server. Closing a stream has the server stop its computation."""

    def __init__(self, connect: Connect) -> None:
        """connect: gives a new connection each time, or raises OSError."""
        self._pool = httpcore.AsyncConnectionPool(
            network_backend=_Connections(connect),
            uds="-",  # which one it is, connect() knows
            max_connections=None,
            max_keepalive_connections=0,
        )

    @staticmethod
    async def prepare() -> None:
        """Imports what is only imported when it is used, which a cage does not allow later."""
        client = ServerClient(asyncio.get_running_loop().create_future)
        with suppress(TimeoutError):
            await asyncio.wait_for(client.get("/", Any), _POLL_S)
        await client.close()

    async def close(self) -> None:
        await self._pool.aclose()

    async def wait_until_ready(self) -> None:
        """Until its model is loaded, however long that takes."""
        while True:
            with suppress(ServerError):
                async with self._stream("GET", "/health", None) as response:
                    if response.status == HTTPStatus.OK:
                        return
            await asyncio.sleep(_POLL_S)

    async def get(self, path: str, kind: Any) -> Any:
        """A reply as `kind`. Raises ServerError."""
        return await self._reply("GET", path, kind, None)

    async def post(self, path: str, body: object, kind: Any) -> Any:
        """The same."""
        return await self._reply("POST", path, kind, body)

    async def _reply(self, method: str, path: str, kind: Any, body: object) -> Any:
        async with self._stream(method, path, body) as response:
            content = await _read(response)
            _check(response, content)
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError as error:
            raise ServerError(f"{path} gives something else than expected: {error}") from error

    async def complete(self, body: object) -> AsyncGenerator[Chunk, None]:
        """The events of POST /completion, the last of which has `stop` or `error`. Raises ServerError."""
        async with self._stream("POST", "/completion", body) as response:
            if response.status != HTTPStatus.OK:
                _check(response, await _read(response))
            async for line in _lines(response):
                if line.startswith((_DATA, _ERROR)):
                    yield _decoded(line)

    @asynccontextmanager
    async def _stream(self, method: str, path: str, body: object) -> AsyncGenerator[httpcore.Response, None]:
        with _server_errors():
            async with self._pool.stream(
                method, f"http://llamacpp{path}", content=_encoded(body)
            ) as response:
                yield response


class _Connections(httpcore.AsyncNetworkBackend):
    """Those that somebody else makes."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        reader, writer = await asyncio.open_unix_connection(sock=await self._connect())
        return _Connection(reader, writer)


class _Connection(httpcore.AsyncNetworkStream):
    """Nothing here takes too long: who waits may be cancelled."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109
        return await self._reader.read(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109
        self._writer.write(buffer)
        await self._writer.drain()

    async def aclose(self) -> None:
        self._writer.close()


@contextmanager
def _server_errors() -> Iterator[None]:
    """Of a server that has gone, or does not speak HTTP."""
    try:
        yield
    except (OSError, httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise ServerError(str(error) or repr(error)) from error


def _encoded(body: object) -> bytes:
    return b"" if body is None else msgspec.json.encode(body)


def _decoded(line: bytes) -> Chunk:
    is_error = line.startswith(_ERROR)
    try:
        if is_error:
            return Chunk(error=msgspec.json.decode(line.removeprefix(_ERROR), type=Failure))
        return _chunks.decode(line.removeprefix(_DATA))
    except msgspec.DecodeError as error:
        raise ServerError(f"an event that is none: {error}") from error


async def _lines(response: httpcore.Response) -> AsyncIterator[bytes]:
    """Not as httpx cuts them: JSON may hold other characters that end lines."""
    rest = b""
    async for part in response.aiter_stream():
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > _MAX_BYTES:
            raise ServerError("an event is longer than any")
        for line in lines:
            yield line


async def _read(response: httpcore.Response) -> bytes:
    content = b""
    async for part in response.aiter_stream():
        content += part
        if len(content) > _MAX_BYTES:
            raise ServerError("a reply is longer than any")
    return content


def _check(response: httpcore.Response, content: bytes) -> None:
    if response.status == HTTPStatus.OK:
        return
    try:
        text = msgspec.json.decode(content, type=_Refusal).error.message
    except msgspec.DecodeError:
        text = f"HTTP status {response.status}"
    raise ServerError(text, is_refused=response.status in _REFUSALS)
