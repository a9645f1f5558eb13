"""A sequence's tokens and KV in a file, so that they outlive the process.

All integers are little-endian. A MAC is the keyed BLAKE3 of all that comes before it, other MACs left out; so
each part is sound only behind those before it, and all of it behind its header, which says what it is of.

    magic, version, bytes of the header, name of the key | header, as JSON | MAC
    token ids, int32 | MAC
    for each block: its bytes | MAC
"""

from __future__ import annotations

import hmac
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import IO, TYPE_CHECKING, Annotated

import msgspec
from blake3 import blake3

from puna.kv.blocks import BLOCK_TOKENS, blocks_for
from puna.kv.state_key import derive_key

if TYPE_CHECKING:  # the daemon, which reads headers, does without NumPy
    import numpy as np
    from numpy.typing import NDArray

VERSION = 2
"""Changes with the format, and with how KV lies in a block."""

_MAGIC = b"puna-kv\0"
_MAC_BYTES = 32
_KEY_NAME_BYTES = 8
_PREFIX = struct.Struct(f"<8sII{_KEY_NAME_BYTES}s")
_MAX_HEADER_BYTES = 64 << 10
_PURPOSE = b"sessions"

_Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, or read; the text says why."""


class CheckpointMismatch(CheckpointError):
    """A sound checkpoint, but of another kind of KV; the text says what differs."""


class KvIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What must be equal for KV to mean the same."""

    model_id: str
    """Digest of the weights."""
    kv_type: str
    num_layers: _Positive
    block_bytes: _Positive
    block_tokens: _Positive = BLOCK_TOKENS


class CheckpointHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of itself."""

    kv: KvIdentity
    name: str
    namespace: str
    """Of the prefix cache: the part that the tokens belong to."""
    num_tokens: _Positive
    created_at: Annotated[datetime, msgspec.Meta(tz=True)]

    @property
    def num_blocks(self) -> int:
        return blocks_for(self.num_tokens)

    def require(self, kv: KvIdentity, name: str) -> None:
        """Raises CheckpointMismatch, which names the first difference to `kv` and `name`."""
        for field in KvIdentity.__struct_fields__:
            ours, theirs = getattr(kv, field), getattr(self.kv, field)
            if ours != theirs:
                raise CheckpointMismatch(
                    f"the session was saved with another {_FIELD_NAMES[field]}: {theirs}, not {ours}"
                )
        if self.name != name:
            raise CheckpointMismatch(f"the session was saved under another name: {self.name}, not {name}")


_FIELD_NAMES = {
    "model_id": "model",
    "kv_type": "KV cache type",
    "num_layers": "number of layers",
    "block_bytes": "block size",
    "block_tokens": "number of tokens in a block",
}


def write_checkpoint(
    descriptor: int,
    key: bytes,
    header: CheckpointHeader,
    tokens: NDArray[np.int32],
    blocks: Iterable[NDArray[np.uint8]],
) -> None:
    """Fills an empty file, and waits until all of it is on disk.

    descriptor: stays the caller's. key: who reads the file must know it.
    tokens: [num_tokens]; blocks: num_blocks times [block_bytes], each read before the next is asked for.
    Raises CheckpointError, and whatever `blocks` raises.
    """
    assert len(tokens) == header.num_tokens
    with (
        _reported(f"cannot write session '{header.name}'"),
        os.fdopen(descriptor, "wb", closefd=False) as file,
    ):
        _write(file, derive_key(key, _PURPOSE), header, tokens, blocks)
        file.flush()
        os.fsync(descriptor)


def read_header(descriptor: int, key: bytes, name: str) -> CheckpointHeader:
    """As Checkpoint(), of which it only looks at the beginning and the size. Raises CheckpointError."""
    with Checkpoint(descriptor, key, name) as checkpoint:
        return checkpoint.header


class Checkpoint:
    """A file that is being read; nothing in it is believed before its MAC has been compared."""

    def __init__(self, descriptor: int, key: bytes, name: str) -> None:
        """descriptor: of a regular file; closed with this. key: with which it was written.
        name: what errors call the file. Raises CheckpointError.
        """
        self.name = name
        self._key = derive_key(key, _PURPOSE)
        self._mac = blake3(key=self._key)
        self._file = os.fdopen(descriptor, "rb")
        try:
            self.header = self._read_header()
            self._check_size()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def read_tokens(self) -> NDArray[np.int32]:
        """[num_tokens]; to be called once, before blocks(). Raises CheckpointError."""
        import numpy as np

        tokens = np.empty(self.header.num_tokens, dtype="<i4")
        self._read_into(tokens.data.cast("B"))
        self._compare_mac("tokens")
        return tokens.astype(np.int32)

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        """num_blocks times [block_bytes], which the next one overwrites. Raises CheckpointError."""
        import numpy as np

        block = np.empty(self.header.kv.block_bytes, dtype=np.uint8)
        for index in range(self.header.num_blocks):
            self._read_into(block.data)
            self._compare_mac(f"block {index}")
            yield block

    def _read_header(self) -> CheckpointHeader:
        prefix = self._read(_PREFIX.size)
        magic, version, header_bytes, key_name = _PREFIX.unpack(prefix)
        if magic != _MAGIC:
            raise CheckpointError(f"{self.name} is not a saved session")
        if version < VERSION:
            raise CheckpointError(
                f"{self.name} was saved by an older version of puna, whose sessions anybody could forge: "
                "it cannot be loaded any more"
            )
        if version != VERSION:
            raise CheckpointError(f"{self.name} has version {version} of the format, known is {VERSION}")
        if key_name != _key_name(self._key):
            raise CheckpointError(
                f"{self.name} was saved with another key: a session can be loaded only by who saved it"
            )
        if header_bytes > _MAX_HEADER_BYTES:
            raise CheckpointError(f"{self.name} is corrupt: a header of {header_bytes} bytes")
        header = self._read(header_bytes)
        self._compare_mac("header")
        try:
            return msgspec.json.decode(header, type=CheckpointHeader)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{self.name} is corrupt: {error}") from error

    def _check_size(self) -> None:
        """Before anybody makes room for what the header promises."""
        header = self.header
        expected = self._file.tell() + 4 * header.num_tokens + _MAC_BYTES
        expected += header.num_blocks * (header.kv.block_bytes + _MAC_BYTES)
        actual = os.fstat(self._file.fileno()).st_size
        if actual != expected:
            state = "truncated" if actual < expected else "corrupt"
            raise CheckpointError(f"{self.name} is {state}: {actual} bytes instead of {expected}")

    def _read(self, num_bytes: int) -> bytes:
        data = bytearray(num_bytes)
        self._read_into(memoryview(data))
        return bytes(data)

    def _read_into(self, target: memoryview) -> None:
        self._fill(target)
        self._mac.update(target)

    def _compare_mac(self, part: str) -> None:
        given = bytearray(_MAC_BYTES)
        self._fill(memoryview(given))
        if not hmac.compare_digest(given, self._mac.digest()):
            raise CheckpointError(f"{self.name} is corrupt, or was changed: the MAC of its {part} is wrong")

    def _fill(self, target: memoryview) -> None:
        with _reported(f"cannot read {self.name}"):
            num_bytes = self._file.readinto(target)
        if num_bytes != len(target):
            raise CheckpointError(f"{self.name} is truncated")


def _write(
    file: IO[bytes],
    key: bytes,
    header: CheckpointHeader,
    tokens: NDArray[np.int32],
    blocks: Iterable[NDArray[np.uint8]],
) -> None:
    encoded = msgspec.json.encode(header)
    if len(encoded) > _MAX_HEADER_BYTES:
        raise CheckpointError(f"the session's header has {len(encoded)} bytes, more than {_MAX_HEADER_BYTES}")
    mac = blake3(key=key)
    _write_part(file, _PREFIX.pack(_MAGIC, VERSION, len(encoded), _key_name(key)) + encoded, mac)
    _write_part(file, tokens.astype("<i4").tobytes(), mac)
    num_blocks = 0
    for block in blocks:
        assert block.nbytes == header.kv.block_bytes
        _write_part(file, block.data, mac)
        num_blocks += 1
    assert num_blocks == header.num_blocks, f"{num_blocks} blocks instead of {header.num_blocks}"


def _write_part(file: IO[bytes], data: bytes | memoryview, mac: blake3) -> None:
    """Writes data and the MAC of all data so far."""
    file.write(data)
    file.write(mac.update(data).digest())


def _key_name(key: bytes) -> bytes:
    return derive_key(key, b"name")[:_KEY_NAME_BYTES]


@contextmanager
def _reported(action: str) -> Iterator[None]:
    """Turns an OSError into a CheckpointError that says what failed and why."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{action}: {error.strerror or error}") from error
