"""A sequence's tokens and KV in a file, so that they outlive the process.

All integers are little-endian. A checksum is the CRC-32 of all that comes before it, other checksums left out
(with them it would start over at each: two blocks could change places).

    magic, version, bytes of the header | header, as JSON | checksum
    token ids, int32 | checksum
    for each block: its bytes | checksum
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from puna.kv.sequence_table import BLOCK_TOKENS, blocks_for

VERSION = 1
"""Changes with the format, and with how KV lies in a block."""

_MAGIC = b"puna-kv\0"
_PREFIX = struct.Struct("<8sII")
_CHECKSUM = struct.Struct("<I")
_MAX_HEADER_BYTES = 64 << 10
_LEFTOVER_AGE_S = 3600.0

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
    cache_salt: str
    """Of the prefix cache that the tokens belong to."""
    num_tokens: _Positive
    created_at: Annotated[datetime, msgspec.Meta(tz=True)]

    @property
    def num_blocks(self) -> int:
        return blocks_for(self.num_tokens)

    def require(self, kv: KvIdentity) -> None:
        """Raises CheckpointMismatch, which names the first difference to `kv`."""
        for field in KvIdentity.__struct_fields__:
            ours, theirs = getattr(kv, field), getattr(self.kv, field)
            if ours != theirs:
                raise CheckpointMismatch(
                    f"the session was saved with another {_FIELD_NAMES[field]}: {theirs}, not {ours}"
                )


_FIELD_NAMES = {
    "model_id": "model",
    "kv_type": "KV cache type",
    "num_layers": "number of layers",
    "block_bytes": "block size",
    "block_tokens": "number of tokens in a block",
}


def write_checkpoint(
    path: Path, header: CheckpointHeader, tokens: NDArray[np.int32], blocks: Iterable[NDArray[np.uint8]]
) -> None:
    """Writes a file that is there whole, also after a power cut, or not at all.

    tokens: [num_tokens]; blocks: num_blocks times [block_bytes], each read before the next is asked for.
    Raises CheckpointError, and whatever `blocks` raises.
    """
    assert len(tokens) == header.num_tokens
    with _reported(f"cannot write {path}"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Readable for the owner only: a conversation can be read off it.
        descriptor, temporary = tempfile.mkstemp(prefix="puna-", suffix=".tmp", dir=path.parent)
    try:
        with _reported(f"cannot write {path}"), os.fdopen(descriptor, "wb") as file:
            _write(file, header, tokens, blocks)
            file.flush()
            os.fsync(file.fileno())
            Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    with _reported(f"cannot write {path}"):
        _sync_directory(path.parent)


def remove_leftovers(directory: Path) -> None:
    """Removes what killed processes left in `directory`: what nobody has written to for an hour."""
    for path in directory.glob("puna-*.tmp"):
        with suppress(OSError):  # gone already
            if time.time() - path.stat().st_mtime > _LEFTOVER_AGE_S:
                path.unlink()


def read_header(path: Path) -> CheckpointHeader:
    """Only looks at the file's beginning and its size. Raises CheckpointError."""
    with Checkpoint(path) as checkpoint:
        return checkpoint.header


class Checkpoint:
    """A file that is being read; nothing in it is believed before its checksum has been compared."""

    def __init__(self, path: Path) -> None:
        """Raises CheckpointError."""
        self.path = path
        self._checksum = 0
        with _reported(f"cannot read {path}"):
            self._file = path.open("rb")
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
        tokens = np.empty(self.header.num_tokens, dtype="<i4")
        self._read_into(tokens.data.cast("B"))
        self._compare_checksum("tokens")
        return tokens.astype(np.int32)

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        """num_blocks times [block_bytes], which the next one overwrites. Raises CheckpointError."""
        block = np.empty(self.header.kv.block_bytes, dtype=np.uint8)
        for index in range(self.header.num_blocks):
            self._read_into(block.data)
            self._compare_checksum(f"block {index}")
            yield block

    def _read_header(self) -> CheckpointHeader:
        prefix = self._read(_PREFIX.size)
        magic, version, header_bytes = _PREFIX.unpack(prefix)
        if magic != _MAGIC:
            raise CheckpointError(f"{self.path} is not a saved session")
        if version != VERSION:
            raise CheckpointError(f"{self.path} has version {version} of the format, known is {VERSION}")
        if header_bytes > _MAX_HEADER_BYTES:
            raise CheckpointError(f"{self.path} is corrupt: a header of {header_bytes} bytes")
        header = self._read(header_bytes)
        self._compare_checksum("header")
        try:
            return msgspec.json.decode(header, type=CheckpointHeader)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{self.path} is corrupt: {error}") from error

    def _check_size(self) -> None:
        """Before anybody makes room for what the header promises."""
        header = self.header
        expected = self._file.tell() + 4 * header.num_tokens + _CHECKSUM.size
        expected += header.num_blocks * (header.kv.block_bytes + _CHECKSUM.size)
        actual = os.fstat(self._file.fileno()).st_size
        if actual != expected:
            state = "truncated" if actual < expected else "corrupt"
            raise CheckpointError(f"{self.path} is {state}: {actual} bytes instead of {expected}")

    def _read(self, num_bytes: int) -> bytes:
        data = bytearray(num_bytes)
        self._read_into(memoryview(data))
        return bytes(data)

    def _read_into(self, target: memoryview) -> None:
        self._fill(target)
        self._checksum = zlib.crc32(target, self._checksum)

    def _compare_checksum(self, part: str) -> None:
        packed = bytearray(_CHECKSUM.size)
        self._fill(memoryview(packed))
        if packed != _CHECKSUM.pack(self._checksum):
            raise CheckpointError(f"{self.path} is corrupt: the checksum of its {part} is wrong")

    def _fill(self, target: memoryview) -> None:
        with _reported(f"cannot read {self.path}"):
            num_bytes = self._file.readinto(target)
        if num_bytes != len(target):
            raise CheckpointError(f"{self.path} is truncated")


def _write(
    file: IO[bytes],
    header: CheckpointHeader,
    tokens: NDArray[np.int32],
    blocks: Iterable[NDArray[np.uint8]],
) -> None:
    encoded = msgspec.json.encode(header)
    if len(encoded) > _MAX_HEADER_BYTES:
        raise CheckpointError(f"the session's header has {len(encoded)} bytes, more than {_MAX_HEADER_BYTES}")
    checksum = _write_part(file, _PREFIX.pack(_MAGIC, VERSION, len(encoded)) + encoded, 0)
    checksum = _write_part(file, tokens.astype("<i4").tobytes(), checksum)
    num_blocks = 0
    for block in blocks:
        assert block.nbytes == header.kv.block_bytes
        checksum = _write_part(file, block.data, checksum)
        num_blocks += 1
    assert num_blocks == header.num_blocks, f"{num_blocks} blocks instead of {header.num_blocks}"


def _write_part(file: IO[bytes], data: bytes | memoryview, checksum: int) -> int:
    """Writes data and the checksum of all data so far, which it returns."""
    checksum = zlib.crc32(data, checksum)
    file.write(data)
    file.write(_CHECKSUM.pack(checksum))
    return checksum


def _sync_directory(directory: Path) -> None:
    """So that a power cut does not undo the renaming."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _reported(action: str) -> Iterator[None]:
    """Turns an OSError into a CheckpointError that says what failed and why."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{action}: {error.strerror or error}") from error
