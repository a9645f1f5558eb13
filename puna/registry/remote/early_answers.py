"""Answers that come before a request's body has been sent.

A registry that wants a part of a blob to go elsewhere says so at once, and closes the connection on who goes
on sending. httpx reads nothing before it has sent everything, and would then find the answer lost; with this,
what comes meanwhile is read, and the body is broken off.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any

import httpcore
import httpx


def listen_while_sending(client: httpx.AsyncClient) -> None:
    """For all connections that the client makes from now on."""
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.AsyncHTTPTransport):  # httpx has no other way to its connections
            transport._pool._network_backend = _Backend(transport._pool._network_backend)


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, inner: httpcore.AsyncNetworkBackend) -> None:
        self._inner = inner

    async def connect_tcp(self, *arguments: Any, **named: Any) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.connect_tcp(*arguments, **named))

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    """Reads while it writes."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._reading: asyncio.Task[bytes] | None = None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 as httpcore has it
        reading = self._reading = self._reading or asyncio.create_task(self._inner.read(_READ_BYTES))
        writing = asyncio.create_task(self._inner.write(buffer, timeout))
        try:
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()
                return
        finally:
            await _cancelled(writing)
        raise httpcore.WriteError("answered before all was sent")  # which has httpcore read the answer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        if self._reading is None:
            return await self._inner.read(max_bytes, timeout)
        await asyncio.wait({self._reading}, timeout=timeout)
        if not self._reading.done():
            raise httpcore.ReadTimeout
        reading, self._reading = self._reading, None
        return reading.result()

    async def aclose(self) -> None:
        if self._reading is not None:
            await _cancelled(self._reading)
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


_READ_BYTES = 64 << 10  # as httpcore asks for


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})
    with suppress(asyncio.CancelledError):
        task.exception()  # retrieved, or asyncio reports it as forgotten
