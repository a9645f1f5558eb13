"""Blocks of a prefix cache in files, one each, found by what they hold.

A block's key is a hash of the key of the block before it and of its own tokens: it stands for all tokens from
the first on. Instead of a block, a salt and the kind of KV come before a first one. In a file, little-endian:

    magic, version, number of tokens, bytes of the block, key of the block before, tokens (int32) | checksum
    number of tokens and tokens of the block that was used last behind this one | the block's bytes

The checksum, XXH3, is of what stands before it and of the block. What comes behind the block is a hint and
outside of it: it changes while the file stays, and only names a file that speaks for itself.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from puna.kv.sequence_table import BLOCK_TOKENS

VERSION = 1
"""Changes with the format, and with how KV lies in a block."""
SUFFIX = ".kv"

_MAGIC = b"puna-pfx"
_KEY_BYTES = 20
_TOKEN_BYTES = 4
_TOKENS_BYTES = _TOKEN_BYTES * BLOCK_TOKENS
_FRONT = struct.Struct(f"<8sIIQ{_KEY_BYTES}s{_TOKENS_BYTES}s")
_CHECKSUM = struct.Struct("<Q")
_HINT = struct.Struct(f"<I{_TOKENS_BYTES}s")
_HINT_OFFSET = _FRONT.size + _CHECKSUM.size
_HEADER_BYTES = 192  # the block then starts on the border of a cache line

Report = Callable[[str, Exception | None], None]
"""Told (what went wrong, why). Nobody has to do anything about it."""


class StoredBlock(NamedTuple):
    """What a file is found by."""

    parent: bytes
    """Key of the block before."""
    tokens: bytes
    """int32, at most those of a block."""
    key: bytes

    @classmethod
    def behind(cls, parent: bytes, tokens: bytes) -> StoredBlock:
        return cls(parent, tokens, hashlib.blake2b(parent + tokens, digest_size=_KEY_BYTES).digest())


class PrefixFiles:
    """The files of one kind of KV. For any thread; two may write the same file: it is the same to the bit."""

    def __init__(self, directory: Path, kind: bytes, block_bytes: int, report: Report) -> None:
        """kind: all that must be equal for KV to mean the same."""
        self.directory = directory
        self.block_bytes = block_bytes
        self.file_bytes = _HEADER_BYTES + block_bytes
        self._kind = kind
        self._report = report

    def root(self, salt: str) -> bytes:
        """What stands for the block before a first one."""
        salted = self._kind + b"\0" + salt.encode(errors="surrogatepass")
        return hashlib.blake2b(salted, digest_size=_KEY_BYTES).digest()

    def has(self, block: StoredBlock) -> bool:
        """Whether there is a file of the right size."""
        try:
            return Path(self._path(block)).stat().st_size == self.file_bytes
        except OSError:
            return False

    def following(self, block: StoredBlock) -> bytes:
        """Tokens of the block that was used last behind this one; empty if that is not known."""
        with suppress(OSError), _opened(self._path(block), os.O_RDONLY) as file:
            hint = os.pread(file, _HINT.size, _HINT_OFFSET)
            if len(hint) == _HINT.size:
                num_tokens, tokens = _HINT.unpack(hint)
                return bytes(tokens[: _TOKEN_BYTES * num_tokens])
        return b""

    def read(self, block: StoredBlock, target: NDArray[np.uint8]) -> bool:
        """Fills target [block_bytes]; False, and it holds anything, if there is no sound file.

        A file that is not sound is removed.
        """
        header = bytearray(_HEADER_BYTES)
        try:
            with _opened(self._path(block), os.O_RDONLY) as file:
                num_bytes = os.preadv(file, [header, target.data], 0)
        except FileNotFoundError:  # others may have needed its place
            return False
        except OSError as error:
            self._report("cannot read cached prefixes", error)
            return False
        front = self._front(block)
        if num_bytes == self.file_bytes and header.startswith(front + _checksum(front, target)):
            return True
        self._report("removed a damaged file of a cached prefix", None)
        with suppress(OSError):
            Path(self._path(block)).unlink()
        return False

    def write(
        self, block: StoredBlock, content: NDArray[np.uint8], following: bytes, modified_ns: int
    ) -> bool:
        """Makes a file, of the given age, if there is none; otherwise its hint and its age are changed.

        content: [block_bytes]. Whether one was made. Raises OSError.
        """
        hint = _HINT.pack(len(following) // _TOKEN_BYTES, following)
        if self._renew(block, hint, modified_ns):
            return False
        front = self._front(block)
        header = (front + _checksum(front, content) + hint).ljust(_HEADER_BYTES, b"\0")
        temporary = self.directory / f"puna-{block.key.hex()}-{os.getpid()}.tmp"
        try:
            self._write_new(temporary, [header, content.data], modified_ns)
            temporary.replace(self._path(block))
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        return True

    def _path(self, block: StoredBlock) -> str:
        return f"{self.directory}/{block.key.hex()}{SUFFIX}"

    def _front(self, block: StoredBlock) -> bytes:
        num_tokens = len(block.tokens) // _TOKEN_BYTES
        return _FRONT.pack(_MAGIC, VERSION, num_tokens, self.block_bytes, block.parent, block.tokens)

    def _renew(self, block: StoredBlock, hint: bytes, modified_ns: int) -> bool:
        try:
            with _opened(self._path(block), os.O_WRONLY) as file:
                if os.fstat(file).st_size != self.file_bytes:
                    return False
                os.pwrite(file, hint, _HINT_OFFSET)
                os.utime(file, ns=(modified_ns, modified_ns))
                return True
        except FileNotFoundError:
            return False

    def _write_new(self, path: Path, parts: list[bytes | memoryview], modified_ns: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            opened = os.open(path, flags, 0o600)  # a conversation can be read off it
        except FileNotFoundError:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = os.open(path, flags, 0o600)
        try:
            if os.writev(opened, parts) != self.file_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.utime(opened, ns=(modified_ns, modified_ns))
        finally:
            os.close(opened)


def _checksum(front: bytes, content: NDArray[np.uint8]) -> bytes:
    checksum = xxhash.xxh3_64(front)
    checksum.update(content.data)
    return _CHECKSUM.pack(checksum.intdigest())


@contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    file = os.open(path, flags)
    try:
        yield file
    finally:
        os.close(file)
