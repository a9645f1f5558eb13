"""Messages between the daemon and a worker: MessagePack in frames of a 4-byte length and that many bytes."""

from __future__ import annotations

import struct
from typing import BinaryIO, Literal, TypeVar

import msgspec

from puna.backends.base import ModelInfo
from puna.engine.request import EngineStats, Request, StepOutput
from puna.engine.sessions import SessionStatus
from puna.engine.trace import EngineTrace
from puna.kv.budget import Shortage

MAX_FRAME_BYTES = 64 << 20
"""A prompt of a million tokens has 5 MB: whatever is larger is no message of ours."""

HEADER = struct.Struct(">I")


class ProtocolError(ValueError):
    """Bytes that are no message."""


# To the worker. `call` is repeated in the reply.


class Load(msgspec.Struct, tag=True):
    """Answered by Loaded or LoadFailed."""

    call: int
    model_id: str
    path: bytes  # as the file system names it
    weight: float = 1.0  # share of the device when other models are busy, too
    minimum_kv_bytes: int = 0  # KV memory that the model is sure of


class Unload(msgspec.Struct, tag=True):
    """Answered by Unloaded, after the model's last use."""

    call: int
    model_id: str


class GetStats(msgspec.Struct, tag=True):
    """Answered by Stats."""

    call: int


class GetTrace(msgspec.Struct, tag=True):
    """Answered by Trace."""

    call: int
    seconds: float | None = None
    """Only the last ones; None: as far back as is known."""


class Submit(msgspec.Struct, tag=True):
    """Answered by Outputs with this request's id, until one has a finish_reason."""

    request: Request


class Cancel(msgspec.Struct, tag=True):
    """Of a request; one that is finished is ignored."""

    request_id: str


class ListSessions(msgspec.Struct, tag=True):
    """Answered by SessionList."""

    call: int


class SaveSession(msgspec.Struct, tag=True):
    """Answered by SessionDone, when the file is on disk, or SessionFailed."""

    call: int
    model_id: str
    name: str
    path: bytes


class LoadSession(msgspec.Struct, tag=True):
    """Answered by SessionDone or SessionFailed."""

    call: int
    model_id: str
    name: str
    path: bytes


class RemoveSession(msgspec.Struct, tag=True):
    """From memory. Answered by SessionRemoved."""

    call: int
    model_id: str
    name: str


class SetLimits(msgspec.Struct, tag=True):
    """Of memory, in bytes; None: as before. Answered by LimitsSet."""

    call: int
    kv_limit_bytes: int | None = None
    memory_limit_bytes: int | None = None


class Lease(msgspec.Struct, tag=True):
    """Memory of the budget for somebody outside the worker. Answered by Leased."""

    call: int
    num_bytes: int
    is_held: bool = False  # it was leased from an earlier worker: counted whatever the limits are


class EndLease(msgspec.Struct, tag=True):
    """So much of what was leased is free again. Answered by LeaseEnded."""

    call: int
    num_bytes: int


class TrimKv(msgspec.Struct, tag=True):
    """Gives back all memory that no request needs now. Answered by Trimmed."""

    call: int


class SavePrefixes(msgspec.Struct, tag=True):
    """Before the worker ends: what is cached goes to disk. Answered by PrefixesSaved."""

    call: int


class Sleep(msgspec.Struct, tag=True):
    """The model gives back its KV memory, and lets the system take its weights. Answered by Slept."""

    call: int
    model_id: str


class Wake(msgspec.Struct, tag=True):
    """Answered by Loaded or LoadFailed; the model sleeps on after the latter."""

    call: int
    model_id: str


MemoryMessage = SetLimits | Lease | EndLease | TrimKv
SessionMessage = ListSessions | SaveSession | LoadSession | RemoveSession
ToWorker = (
    Load
    | Unload
    | Sleep
    | Wake
    | GetStats
    | GetTrace
    | Submit
    | Cancel
    | SavePrefixes
    | MemoryMessage
    | SessionMessage
)


# From the worker.


class Ready(msgspec.Struct, tag=True):
    """The first message: the engine is there."""


class Loaded(msgspec.Struct, tag=True):
    call: int
    info: ModelInfo


class LoadFailed(msgspec.Struct, tag=True):
    call: int
    error: str
    shortage: Shortage | None = None
    """None: it would fail whatever the memory."""


class Slept(msgspec.Struct, tag=True):
    call: int


class LimitsSet(msgspec.Struct, tag=True):
    call: int
    excess_bytes: int
    """What is in use beyond the new limits; what running requests hold goes as they finish."""


class Leased(msgspec.Struct, tag=True):
    call: int
    granted: bool
    available_bytes: int
    """What could be granted now."""


class LeaseEnded(msgspec.Struct, tag=True):
    call: int


class Trimmed(msgspec.Struct, tag=True):
    call: int
    freed_bytes: int


class PrefixesSaved(msgspec.Struct, tag=True):
    call: int


class Unloaded(msgspec.Struct, tag=True):
    call: int


class Stats(msgspec.Struct, tag=True):
    call: int
    stats: EngineStats


class Trace(msgspec.Struct, tag=True):
    call: int
    trace: EngineTrace


class SessionList(msgspec.Struct, tag=True):
    call: int
    sessions: list[SessionStatus]


class SessionDone(msgspec.Struct, tag=True):
    call: int


class SessionRemoved(msgspec.Struct, tag=True):
    call: int
    found: bool


SessionFailure = Literal["unknown", "refused", "mismatch", "file"]
"""There is no such session; not now; the file is of another kind of KV; the file is at fault."""


class SessionFailed(msgspec.Struct, tag=True):
    call: int
    kind: SessionFailure
    error: str


class Outputs(msgspec.Struct, tag=True):
    """Everything that one step brought."""

    outputs: list[StepOutput]


SessionReply = SessionList | SessionDone | SessionRemoved | SessionFailed
MemoryReply = LimitsSet | Leased | LeaseEnded | Trimmed
FromWorker = (
    Ready
    | Loaded
    | LoadFailed
    | Unloaded
    | Slept
    | Stats
    | Trace
    | Outputs
    | PrefixesSaved
    | MemoryReply
    | SessionReply
)

_encoder = msgspec.msgpack.Encoder()
T = TypeVar("T")


def encode(message: ToWorker | FromWorker) -> bytes:
    """A whole frame. Raises ProtocolError if it would be too large."""
    payload = _encoder.encode(message)
    return HEADER.pack(_checked(len(payload))) + payload


def decode(payload: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """Raises ProtocolError."""
    try:
        return decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"not a message: {error}") from error


def payload_bytes(header: bytes) -> int:
    """Length of the payload after this header. Raises ProtocolError for one that is too large."""
    (length,) = HEADER.unpack(header)
    return _checked(length)


def read_payload(stream: BinaryIO) -> bytes | None:
    """Blocks for the next frame's payload; None at the end of the stream, even within a frame."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    length = payload_bytes(header)
    payload = stream.read(length)
    return payload if len(payload) == length else None


def printable(text: str) -> str:
    """Text for a message: names of files may hold what is no character and cannot be encoded."""
    return text.encode(errors="backslashreplace").decode()


def _checked(length: int) -> int:
    if length > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {length} bytes is larger than any message")
    return length
