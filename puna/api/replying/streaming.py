"""Replies made of events: streamed one by one or sent as a whole, and ended when the client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from puna.api.errors import ApiError, to_api_error
from puna.api.replying.replies import JSON_MEDIA_TYPE, error_reply

E = TypeVar("E")

PATIENCE_S = 20.0


class Framing(Protocol[E]):
    """How the events of one reply become bytes. May keep state: it serves one reply only."""

    media_type: str
    """Of a stream."""

    def is_whole(self, first: E) -> bool:
        """Whether a reply that begins with `first` is one JSON object even if a stream was asked for."""

    def frame(self, event: E) -> bytes:
        """One event of a stream; may be empty."""

    def end(self) -> bytes:
        """What ends a stream that had no error; may be empty."""

    def error_frame(self, error: ApiError) -> bytes:
        """What ends a stream that had one: the status is long sent."""

    def body(self, events: list[E]) -> bytes:
        """All events as one JSON object."""

    def error_body(self, error: ApiError) -> bytes:
        """An error instead of a reply."""


class EventResponse(Generic[E]):
    """An ASGI reply that runs `events`, which has at least one, to its end, and closes it on every path.

    What fails before the first event is an HTTP error: the status line waits for that event. That of a stream
    does not wait for ever: some clients give up after half a minute without one.
    headers: besides the usual ones, also of an error.
    """

    def __init__(
        self,
        events: AsyncGenerator[E, None],
        framing: Framing[E],
        *,
        stream: bool,
        headers: Mapping[str, str] = {},
    ) -> None:
        self._events = events
        self._framing = framing
        self._stream = stream
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def respond() -> None:
            async with aclosing(self._events):
                await self._respond(scope, receive, send)

        await run_while_connected(receive, respond())

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = asyncio.ensure_future(anext(self._events))
        try:
            if self._stream and await self._begins_early(first, send):
                await self._send_events(first, send)
            else:
                await self._respond_to(first, scope, receive, send)
        finally:
            first.cancel()
            await asyncio.wait({first})  # only then can the events be closed

    async def _begins_early(self, first: asyncio.Future[E], send: Send) -> bool:
        """Waits for the first event. True: the stream has begun without it, with signs of life."""
        is_sse = self._framing.media_type == "text/event-stream"
        has_begun = False
        while not (await asyncio.wait({first}, timeout=PATIENCE_S))[0]:
            if not has_begun:
                await self._begin_stream(send)
            has_begun = True
            sign = b": waiting\n\n" if is_sse else b""
            await send({"type": "http.response.body", "body": sign, "more_body": True})
        return has_begun

    async def _respond_to(
        self, first_event: asyncio.Future[E], scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            first = await first_event
            whole = not self._stream or self._framing.is_whole(first)
            body = await self._collect(first) if whole else b""
        except Exception as error:  # the request's boundary: every error becomes an answer
            failure = to_api_error(error)
            reply = error_reply(self._framing.error_body(failure), failure, self._headers)
            await reply(scope, receive, send)
            return
        if whole:
            await Response(body, headers=self._headers, media_type=JSON_MEDIA_TYPE)(scope, receive, send)
        else:
            await self._begin_stream(send)
            await self._send_events(first_event, send)

    async def _collect(self, first: E) -> bytes:
        return self._framing.body([first, *[event async for event in self._events]])

    async def _begin_stream(self, send: Send) -> None:
        named = {"content-type": self._framing.media_type, **self._headers}
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _send_events(self, first: asyncio.Future[E], send: Send) -> None:
        try:
            await _send_part(send, self._framing.frame(await first))
            async for event in self._events:
                await _send_part(send, self._framing.frame(event))
            last = self._framing.end()
        except Exception as error:  # the request's boundary, too
            last = self._framing.error_frame(to_api_error(error))
        await send({"type": "http.response.body", "body": last})


class WholeResponse:
    """An ASGI reply that awaits one body, and cancels that when the client goes."""

    def __init__(self, body: Coroutine[Any, Any, bytes], encode_error: Callable[[ApiError], bytes]) -> None:
        self._body = body
        self._encode_error = encode_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def respond() -> None:
            try:
                reply = Response(await self._body, media_type=JSON_MEDIA_TYPE)
            except Exception as error:  # the request's boundary: every error becomes an answer
                failure = to_api_error(error)
                reply = error_reply(self._encode_error(failure), failure)
            await reply(scope, receive, send)

        await run_while_connected(receive, respond())


async def _send_part(send: Send, data: bytes) -> None:
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def run_while_connected(receive: Receive, work: Coroutine[None, None, None]) -> None:
    """Runs `work`, whose request body has been read; cancels it as soon as the client disconnects.

    Plain tasks rather than a cancel scope: a scope would cancel every await of the cleanup as well, and
    cleanup tells the worker to stop.
    """
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.wait({task, watcher})
    if not task.cancelled():
        task.result()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
