"""The daemon's end of a channel to a child: calls and events over asyncio."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from puna.worker.calls import (
    HEADER,
    Answer,
    Call,
    Channel,
    Crossing,
    Failed,
    ProtocolError,
    answer_decoder,
    decode,
    encode,
    payload_bytes,
    raised,
    send_descriptors,
)

log = logging.getLogger(__name__)

R = TypeVar("R")


RUNNER_STOPPED = (
    "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error, "
    "check puna server logs for details"
)


class WorkerDied(RuntimeError):
    """A child process has ended, or never began; the text is for users."""

    def __init__(self, text: str = RUNNER_STOPPED) -> None:
        super().__init__(text)


class CallClient:
    """Calls a child over a channel. Every method raises WorkerDied once that is closed.

    events: the type of all events that may come, a union of tagged structs; None: there are none. on_event
    gets each of them.
    on_end: called once, when the channel is closed from the other side.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        channel: Channel,
        *,
        crossing: Crossing,
        events: Any,
        on_event: Callable[[Any], None],
        on_end: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._descriptors = channel.descriptors
        self._descriptors.setblocking(False)  # a child that takes none must not stop the event loop
        self._crossing = crossing
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
            Answer | Failed if events is None else Answer | Failed | events
        )
        self._on_event = on_event
        self._on_end = on_end
        self._calls: dict[int, tuple[type[Call[Any]], asyncio.Future[Any]]] = {}
        self._numbers = itertools.count(1)
        self.is_alive = True
        self._receiver = asyncio.get_running_loop().create_task(self._receive())

    @classmethod
    async def connect(
        cls,
        channel: Channel,
        *,
        crossing: Crossing,
        events: Any = None,
        on_event: Callable[[Any], None] = lambda _: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> CallClient:
        """The channel then belongs to the client."""
        reader, writer = await asyncio.open_unix_connection(sock=channel.stream)
        return cls(
            reader, writer, channel, crossing=crossing, events=events, on_event=on_event, on_end=on_end
        )

    async def call(self, message: Call[R], descriptors: Sequence[int] = ()) -> R:
        """What answers the message. The descriptors stay the caller's: the child gets copies.

        Raises what crosses, CallFailed for other exceptions, ProtocolError for a message that is too large.
        """
        number = next(self._numbers)
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._calls[number] = type(message), answer
        try:
            self._send(number, message, descriptors)
            return await answer
        finally:
            del self._calls[number]

    def tell(self, message: msgspec.Struct) -> None:
        """A message that is not answered."""
        self._send(0, message, ())

    async def close(self) -> None:
        """The child ends when it sees the connection closed."""
        self._receiver.cancel()
        await asyncio.gather(self._receiver, return_exceptions=True)
        self._writer.close()
        self._descriptors.close()
        with suppress(OSError):  # shielded: who is cancelled here would cancel it for others who close, too
            await asyncio.shield(self._writer.wait_closed())

    def _send(self, number: int, message: msgspec.Struct, descriptors: Sequence[int]) -> None:
        # A transport may be closed before the receiver has seen the end; uvloop's then refuses to write.
        if not self.is_alive or self._writer.is_closing():
            raise WorkerDied
        frame = encode((number, len(descriptors), message))
        if descriptors:
            try:
                send_descriptors(self._descriptors, number, descriptors)
            except OSError as error:
                raise WorkerDied(f"the worker process takes no files: {error}") from error
        self._writer.write(frame)

    async def _receive(self) -> None:
        try:
            while True:
                length = payload_bytes(await self._reader.readexactly(HEADER.size))
                self._dispatch(decode(await self._reader.readexactly(length), self._decoder))
        except (OSError, asyncio.IncompleteReadError):
            pass  # ends with the child, in the middle of a frame if it was killed
        except ProtocolError as error:
            log.error("worker: %s", error)
        finally:
            self._end()

    def _dispatch(self, message: Any) -> None:
        match message:
            case Answer(number, result):
                if waiting := self._waiting(number):
                    kind, answer = waiting
                    answer.set_result(decode(bytes(result), answer_decoder(kind)))
            case Failed(number):
                if waiting := self._waiting(number):
                    waiting[1].set_exception(raised(message, self._crossing))
            case _:
                self._on_event(message)

    def _waiting(self, number: int) -> tuple[type[Call[Any]], asyncio.Future[Any]] | None:
        waiting = self._calls.get(number)  # none: nobody waits any more
        return None if waiting is None or waiting[1].done() else waiting

    def _end(self) -> None:
        self.is_alive = False
        for _, answer in self._calls.values():
            if not answer.done():
                answer.set_exception(WorkerDied())
        self._on_end()
