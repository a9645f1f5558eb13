"""gRPC's unary calls on one HTTP/2 connection.

Written on h2, because a caller is known by his connection, which the server of grpcio does not show: it says
"unix:" of everybody on a Unix socket. What a call has done is undone if its caller gives up before he has
read the reply. The protocol is gRPC's doc/PROTOCOL-HTTP2.md.
"""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import cast
from urllib.parse import quote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError

from puna.kvcached.service.resets import Reset, ResetScanner

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 64 << 10
"""Of a request; all of ours are far smaller."""

_PREFIX = struct.Struct(">?I")  # whether it is compressed, and how long it is
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_CONTENT_TYPE = ("content-type", "application/grpc")
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNIT_S = {b"H": 3600, b"M": 60, b"S": 1, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


class Status(IntEnum):
    """Those of gRPC's codes that occur here."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class RpcError(Exception):
    """What a call ends with instead of a reply."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


Undo = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a method returns."""

    message: bytes
    undo: Undo | None = None
    """Called if the caller gave up before he read the message."""


Method = Callable[[bytes], Awaitable[Reply]]
"""Gets a message. Raises RpcError. Cancelled when the caller gives up."""


@dataclass(slots=True)
class _Call:
    path: str
    body: bytearray = field(default_factory=bytearray)
    error: RpcError | None = None
    """In the headers; told when the request is complete."""
    deadline: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None
    """Once the request is complete."""
    undo: Undo | None = None
    """Once there is a reply."""
    unsent: bytes = b""
    """Of the reply, for want of a window."""


class GrpcConnection(asyncio.Protocol):
    """The server's side.

    methods: by path, as `/Service/Method`.
    """

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = methods
        self._h2 = H2Connection(H2Configuration(client_side=False))
        self._resets = ResetScanner()
        self._calls: dict[int, _Call] = {}  # by stream
        self._undoable: dict[int, Undo] = {}  # by stream; their replies are sent, but perhaps not read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._h2.initiate_connection()
        self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._h2.receive_data(data):
                self._handle(event)
            for reset in self._resets.scan(data):
                self._undo(reset)
            # Windows may have opened, of streams that are not reset by now.
            for stream_id in list(self._calls):
                self._send_rest(stream_id)
        except ProtocolError as error:
            log.debug("a client does not speak HTTP/2: %s", error)
            self._flush()
            self._end()
        else:
            self._flush()

    def pause_writing(self) -> None:
        # Who does not read our answers is not listened to: they would pile up.
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self._end()

    def close(self) -> None:
        """The client learns that nothing more comes; its calls end as UNAVAILABLE."""
        self._h2.close_connection()
        self._flush()
        self._end()

    def _end(self) -> None:
        for stream_id in list(self._calls):
            self._forget(stream_id)
        self._transport.close()

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._transport.write(data)

    def _handle(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._begin(event.stream_id, dict(event.headers))
        elif isinstance(event, DataReceived):
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self._collect(event.stream_id, event.data)
        elif isinstance(event, StreamEnded) and event.stream_id in self._calls:
            call = self._calls[event.stream_id]
            call.task = asyncio.create_task(self._answer(event.stream_id, call))
        elif isinstance(event, StreamReset):
            self._forget(event.stream_id)
        elif isinstance(event, ConnectionTerminated):
            self._end()  # h2 lets nothing be sent after that, so replies would be lost

    def _begin(self, stream_id: int, headers: Mapping[bytes, bytes]) -> None:
        call = self._calls[stream_id] = _Call(headers[b":path"].decode(errors="replace"))
        if (text := headers.get(b"grpc-timeout")) is not None:
            try:
                seconds = _timeout_seconds(text)
            except RpcError as error:
                call.error = error
            else:
                call.deadline = asyncio.get_running_loop().call_later(seconds, self._expire, stream_id)

    def _collect(self, stream_id: int, data: bytes) -> None:
        call = self._calls.get(stream_id)
        # What is too long is not kept, and is answered at its end.
        if call is not None and len(call.body) <= MAX_MESSAGE_BYTES:
            call.body += data

    async def _answer(self, stream_id: int, call: _Call) -> None:
        # No await between a method's reply and its sending: what is granted is told, or can be undone.
        try:
            if call.error is not None:
                raise call.error
            reply = await self._method(call.path)(_unframe(call.body))
        except RpcError as error:
            self._fail(stream_id, error)
        except Exception:  # the boundary: others' calls go on
            log.exception("%s failed", call.path)
            self._fail(stream_id, RpcError(Status.INTERNAL, "internal error, see the log of puna"))
        else:
            self._h2.send_headers(stream_id, [(":status", "200"), _CONTENT_TYPE])
            call.undo = reply.undo
            call.unsent = _PREFIX.pack(False, len(reply.message)) + reply.message
            self._send_rest(stream_id)
        self._flush()

    def _method(self, path: str) -> Method:
        try:
            return self._methods[path]
        except KeyError:
            raise RpcError(Status.UNIMPLEMENTED, f"there is no method {path}") from None

    def _send_rest(self, stream_id: int) -> None:
        """As much of the reply as the client takes now; after the last of it, the trailers."""
        call = self._calls[stream_id]
        while call.unsent:
            window = self._h2.local_flow_control_window(stream_id)
            size = min(window, self._h2.max_outbound_frame_size, len(call.unsent))
            if size <= 0:
                return
            self._h2.send_data(stream_id, call.unsent[:size])
            call.unsent = call.unsent[size:]
            if not call.unsent:
                self._h2.send_headers(stream_id, [("grpc-status", str(Status.OK.value))], end_stream=True)
                self._drop(stream_id)
                self._remember(stream_id, call.undo)

    def _fail(self, stream_id: int, error: RpcError) -> None:
        status, text = str(error.status.value), quote(str(error), safe=_PRINTABLE)
        headers = [(":status", "200"), _CONTENT_TYPE, ("grpc-status", status), ("grpc-message", text)]
        self._h2.send_headers(stream_id, headers, end_stream=True)
        self._drop(stream_id)

    def _expire(self, stream_id: int) -> None:
        is_answered_in_part = bool(self._calls[stream_id].unsent)
        self._forget(stream_id)
        if is_answered_in_part:
            self._h2.reset_stream(stream_id, ErrorCodes.CANCEL)
        else:
            self._fail(stream_id, RpcError(Status.DEADLINE_EXCEEDED, "the deadline of the call is over"))
        self._flush()

    def _forget(self, stream_id: int) -> None:
        """A call whose reply the caller has not got, or not to its end."""
        call = self._drop(stream_id)
        if call is None:
            return
        if call.task is not None:
            call.task.cancel()
        if call.undo is not None:
            call.undo()

    def _drop(self, stream_id: int) -> _Call | None:
        call = self._calls.pop(stream_id, None)
        if call is not None and call.deadline is not None:
            call.deadline.cancel()
        return call

    def _remember(self, stream_id: int, undo: Undo | None) -> None:
        # Clients read replies in their order, and a call counts as open until its reply is read: what is
        # unread is among the last so many.
        if undo is not None:
            self._undoable[stream_id] = undo
            if len(self._undoable) > self._h2.local_settings.max_concurrent_streams:
                del self._undoable[next(iter(self._undoable))]

    def _undo(self, reset: Reset) -> None:
        undo = self._undoable.pop(reset.stream_id, None)
        # Some clients reset every stream when they are done with it, with NO_ERROR.
        if undo is not None and reset.error != ErrorCodes.NO_ERROR:
            undo()


def _timeout_seconds(text: bytes) -> float:
    """Of the header grpc-timeout. Raises RpcError."""
    if (match := _TIMEOUT.fullmatch(text)) is None:
        shown = text[:20].decode(errors="replace")
        raise RpcError(Status.INTERNAL, f"grpc-timeout has up to 8 digits and one of HMSmun, not {shown!r}")
    return int(match[1]) * _UNIT_S[match[2]]


def _unframe(body: bytearray) -> bytes:
    """The one message of a request. Raises RpcError."""
    if len(body) > MAX_MESSAGE_BYTES:
        text = f"a request of more than {MAX_MESSAGE_BYTES} bytes makes no sense"
        raise RpcError(Status.RESOURCE_EXHAUSTED, text)
    if len(body) < _PREFIX.size:
        raise RpcError(Status.INTERNAL, "a request holds one message, this one is empty or cut off")
    is_compressed, size = _PREFIX.unpack_from(body)
    if is_compressed:
        raise RpcError(Status.UNIMPLEMENTED, "compressed messages are not supported")
    if len(body) != _PREFIX.size + size:
        raise RpcError(Status.INTERNAL, f"the message has {len(body) - _PREFIX.size} bytes, not {size}")
    return bytes(body[_PREFIX.size :])
