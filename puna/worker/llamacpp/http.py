"""The HTTP that is spoken with llama.cpp's server, on its Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import msgspec

from puna.worker.llamacpp.completions import Chunk, Failure

_DATA = b"data: "
_ERROR = b"error: "
_MAX_BYTES = 32 << 20
"""Of one event, or of a reply that is no stream."""
_POLL_S = 0.02
_REFUSALS = (httpx.codes.BAD_REQUEST, httpx.codes.NOT_IMPLEMENTED)
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


class ServerClient:
    """Speaks to one server. Closing a stream has the server stop its computation."""

    def __init__(self, socket: str) -> None:
        """socket: its path."""
        transport = httpx.AsyncHTTPTransport(
            uds=socket,
            verify=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        self._http = httpx.AsyncClient(
            transport=transport, base_url="http://llamacpp", timeout=None, trust_env=False
        )

    @staticmethod
    async def prepare() -> None:
        """Imports what is only imported when it is used, which a cage does not allow later."""
        client = ServerClient("/nonexistent")
        with suppress(httpx.HTTPError):
            await client.get("/", Any)
        await client.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def wait_until_ready(self) -> None:
        """Until its model is loaded, however long that takes."""
        while True:
            with suppress(httpx.HTTPError):
                async with self._http.stream("GET", "/health") as response:
                    if response.status_code == httpx.codes.OK:
                        return
            await asyncio.sleep(_POLL_S)

    async def get(self, path: str, kind: Any) -> Any:
        """A reply as `kind`. Raises ServerError, httpx.HTTPError."""
        return await self._reply("GET", path, kind, None)

    async def post(self, path: str, body: object, kind: Any) -> Any:
        """The same."""
        return await self._reply("POST", path, kind, body)

    async def _reply(self, method: str, path: str, kind: Any, body: object) -> Any:
        async with self._http.stream(method, path, content=_encoded(body)) as response:
            content = await _read(response)
            _check(response, content)
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError as error:
            raise ServerError(f"{path} gives something else than expected: {error}") from error

    async def complete(self, body: object) -> AsyncGenerator[Chunk, None]:
        """The events of POST /completion, the last of which has `stop` or `error`. Raises ServerError,
        httpx.HTTPError.
        """
        async with self._http.stream("POST", "/completion", content=_encoded(body)) as response:
            if response.status_code != httpx.codes.OK:
                _check(response, await _read(response))
            async for line in _lines(response):
                if line.startswith((_DATA, _ERROR)):
                    yield _decoded(line)


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


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Not as httpx cuts them: JSON may hold other characters that end lines."""
    rest = b""
    async for part in response.aiter_raw():
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > _MAX_BYTES:
            raise ServerError("an event is longer than any")
        for line in lines:
            yield line


async def _read(response: httpx.Response) -> bytes:
    content = b""
    async for part in response.aiter_raw():
        content += part
        if len(content) > _MAX_BYTES:
            raise ServerError("a reply is longer than any")
    return content


def _check(response: httpx.Response, content: bytes) -> None:
    if response.status_code == httpx.codes.OK:
        return
    try:
        text = msgspec.json.decode(content, type=_Refusal).error.message
    except msgspec.DecodeError:
        text = f"HTTP status {response.status_code}"
    raise ServerError(text, is_refused=response.status_code in _REFUSALS)
