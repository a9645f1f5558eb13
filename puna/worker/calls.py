"""Typed calls between the daemon and its children.

A channel is a pair of sockets: a stream of frames, each a 4-byte length and a MessagePack value, and a
SOCK_SEQPACKET socket for file descriptors. Those that belong to a message are sent right before its frame.

    to the child     [call, number of descriptors, message]      call 0: nobody waits for an answer
    from the child   Answer, Failed, or an event
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, BinaryIO, Generic, NamedTuple, Protocol, TypeVar, get_args, get_origin

import msgspec

MAX_FRAME_BYTES = 64 << 20
"""A prompt of a million tokens has 5 MB: whatever is larger is no message of ours."""
MAX_ERROR_BYTES = 1024
"""Of an error's text, which may quote a file."""
MAX_DESCRIPTORS = 64
"""With one message."""

HEADER = struct.Struct(">I")
_TICKET = struct.Struct(">Q")

R_co = TypeVar("R_co", covariant=True)
M = TypeVar("M")


class ProtocolError(ValueError):
    """Bytes that are no message, or a message that is too large."""


class Call(msgspec.Struct, Generic[R_co], frozen=True, tag=True):
    """A message that is answered with an R, or with an exception that may cross."""


R = TypeVar("R")


class Caller(Protocol):
    """Whoever can call a child: a client, or what stands before one."""

    async def call(self, message: Call[R], descriptors: Sequence[int] = ()) -> R:
        """What answers the message. Raises WorkerDied, and what the message says."""


class Answer(msgspec.Struct, frozen=True, tag=True):
    """The result of a call, encoded as its type."""

    call: int
    result: msgspec.Raw


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The exception that a call raised: its class and its text."""

    call: int
    kind: str
    text: str


Crossing = tuple[type[Exception], ...]
"""The exceptions that cross a channel as what they are; others become CallFailed."""


class CallFailed(RuntimeError):
    """A call ended with an exception that nobody foresaw; the child has logged it."""


class Asked(NamedTuple):
    """A message that came to a child. The descriptors are the receiver's to close."""

    call: int
    message: Any
    descriptors: list[int]


@cache
def answer_decoder(kind: type[Call[Any]]) -> msgspec.msgpack.Decoder[Any]:
    """Decodes what a call of this kind is answered with."""
    for base in kind.__orig_bases__:  # type: ignore[attr-defined]
        if get_origin(base) is Call:
            return msgspec.msgpack.Decoder(get_args(base)[0])
    raise TypeError(f"{kind.__name__} does not say what answers it")


def printable(text: str) -> str:
    """Text for a message, at most MAX_ERROR_BYTES: names of files may hold what cannot be encoded."""
    encoded = text[: MAX_ERROR_BYTES + 1].encode(errors="backslashreplace")
    if len(encoded) <= MAX_ERROR_BYTES:
        return encoded.decode()
    return encoded[: MAX_ERROR_BYTES - 3].decode(errors="ignore") + "..."


_encoder = msgspec.msgpack.Encoder()


def encode(message: Any) -> bytes:
    """A whole frame. Raises ProtocolError if it would be too large, or holds what cannot be encoded."""
    try:
        payload = _encoder.encode(message)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"a message cannot be encoded: {error}") from error
    return HEADER.pack(_checked(len(payload))) + payload


def decode(payload: bytes, decoder: msgspec.msgpack.Decoder[M]) -> M:
    """Raises ProtocolError."""
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not a message: {error}") from error


def payload_bytes(header: bytes) -> int:
    """Length of the payload after this header. Raises ProtocolError for one that is too large."""
    (length,) = HEADER.unpack(header)
    return _checked(length)


def _checked(length: int) -> int:
    if length > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {length} bytes is larger than any message")
    return length


def failure(call: int, error: Exception, crossing: Crossing) -> Failed:
    """What tells the caller of `error`: the first class in `crossing` that it is an instance of."""
    for kind in crossing:
        if isinstance(error, kind):
            return Failed(call, kind.__name__, printable(str(error)))
    return Failed(call, CallFailed.__name__, printable(f"{type(error).__name__}: {error}"))


def raised(failed: Failed, crossing: Crossing) -> Exception:
    """The exception that failure() described."""
    kinds = {kind.__name__: kind for kind in crossing}
    return kinds.get(failed.kind, CallFailed)(failed.text)


class Channel(NamedTuple):
    """One end of a channel. The sockets are the owner's to close."""

    stream: socket.socket
    descriptors: socket.socket

    @property
    def numbers(self) -> list[int]:
        """File descriptors, to be inherited by a child."""
        return [self.stream.fileno(), self.descriptors.fileno()]

    def close(self) -> None:
        self.stream.close()
        self.descriptors.close()


def open_channel() -> tuple[Channel, Channel]:
    """Two connected ends. Raises OSError."""
    stream, other_stream = socket.socketpair()
    try:
        descriptors, other_descriptors = socket.socketpair(type=socket.SOCK_SEQPACKET)
    except BaseException:
        stream.close()
        other_stream.close()
        raise
    return Channel(stream, descriptors), Channel(other_stream, other_descriptors)


def inherited_channel(stream: int, descriptors: int) -> Channel:
    """The child's end, by the numbers that it inherited."""
    return Channel(socket.socket(fileno=stream), socket.socket(fileno=descriptors))


def send_descriptors(connection: socket.socket, ticket: int, descriptors: Sequence[int]) -> None:
    """Before the frame of the message that they belong to. Raises OSError."""
    assert len(descriptors) <= MAX_DESCRIPTORS
    socket.send_fds(connection, [_TICKET.pack(ticket)], list(descriptors))


def receive_descriptors(connection: socket.socket, ticket: int, count: int) -> list[int]:
    """Those that were sent with this ticket, not inheritable. Raises ProtocolError if others come."""
    if count > MAX_DESCRIPTORS:
        raise ProtocolError(f"{count} descriptors with one message")
    space = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
    data, ancillary, _, _ = connection.recvmsg(_TICKET.size, space, socket.MSG_CMSG_CLOEXEC)
    received = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            received.frombytes(content[: len(content) - len(content) % received.itemsize])
    if data != _TICKET.pack(ticket) or len(received) != count:
        close_all(received)
        raise ProtocolError(f"{len(received)} descriptors instead of {count}")
    return list(received)


def close_all(descriptors: Sequence[int]) -> None:
    """Closes each of them."""
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)


class CallServer:
    """A child's end: reads in one thread, answers from one thread, both blocking.

    What is said to a daemon that is gone is lost; read() tells that it is.

    messages: the type of all messages that may come, a union of tagged structs.
    """

    def __init__(self, channel: Channel, messages: Any, crossing: Crossing) -> None:
        self._channel = channel
        self._stream: BinaryIO = channel.stream.makefile("rb")
        self._decoder = msgspec.msgpack.Decoder(tuple[int, int, messages])
        self._crossing = crossing

    def read(self) -> Asked | None:
        """Blocks for the next message; None at the end of the stream, even within a frame.

        Raises ProtocolError, OSError.
        """
        header = self._stream.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        length = payload_bytes(header)
        payload = self._stream.read(length)
        if len(payload) < length:
            return None
        call, num_descriptors, message = decode(payload, self._decoder)
        if not num_descriptors:
            return Asked(call, message, [])
        return Asked(call, message, receive_descriptors(self._channel.descriptors, call, num_descriptors))

    def answer(self, call: int, result: object) -> None:
        """What cannot be sent becomes a failure of this call."""
        try:
            frame = encode(Answer(call, msgspec.Raw(_encoder.encode(result))))
        except (ProtocolError, TypeError, ValueError, OverflowError, RecursionError) as error:
            self.fail(call, error)
        else:
            self._send(frame)

    def fail(self, call: int, error: Exception) -> None:
        """Tells what the call raised."""
        self._send(encode(failure(call, error, self._crossing)))

    def tell(self, event: msgspec.Struct) -> None:
        """An event. Raises ProtocolError, with nothing sent, for one that cannot be."""
        self._send(encode(event))

    def _send(self, frame: bytes) -> None:
        with suppress(OSError):
            self._channel.stream.sendall(frame)

    def shut_down(self) -> None:
        """Ends a read() in another thread."""
        with suppress(OSError):
            self._channel.stream.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._stream.close()
        self._channel.close()
