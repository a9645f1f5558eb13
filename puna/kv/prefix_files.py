"""Blocks of a prefix cache in files, one each, found by what they hold.

A block's key is a keyed hash of the key of the block before it and of its own tokens: it stands for all
tokens from the first on. Instead of a block, a namespace comes before a first one. In a file, little-endian:

    magic, version, number of tokens, bytes of the block, key of the block before, tokens (int32) | MAC
    number of tokens and tokens of the block that was used last behind this one | the block's bytes

The MAC, keyed BLAKE3, is of what stands before it and of the block. Its key is that of the kind of KV, so a
file is sound only where it was written: for these weights, behind these tokens, in this namespace. What comes
behind it is a hint, and outside: it changes while the file stays, and names a file that speaks for itself.
"""

from __future__ import annotations

import errno
import hmac
import os
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from puna.kv.blocks import BLOCK_TOKENS
from puna.kv.state_directory import StateDirectory
from puna.kv.state_key import derive_key

VERSION = 2
"""Changes with the format, and with how KV lies in a block."""
SUFFIX = ".kv"

_MAGIC = b"puna-pfx"
_KEY_BYTES = 32
_MAC_BYTES = 32
_TOKEN_BYTES = 4
_TOKENS_BYTES = _TOKEN_BYTES * BLOCK_TOKENS
_FRONT = struct.Struct(f"<8sIIQ{_KEY_BYTES}s{_TOKENS_BYTES}s")
_HINT = struct.Struct(f"<I{_TOKENS_BYTES}s")
_HINT_OFFSET = _FRONT.size + _MAC_BYTES
HEADER_BYTES = 256  # the block then starts on the border of a cache line

Report = Callable[[str, Exception | None], None]
"""Told (what went wrong, why). Nobody has to do anything about it."""


class StoredBlock(NamedTuple):
    """What a file is found by."""

    parent: bytes
    """Key of the block before."""
    tokens: bytes
    """int32, at most those of a block."""
    key: bytes

    @property
    def file_name(self) -> str:
        return f"{self.key.hex()}{SUFFIX}"


class PrefixFiles:
    """The files of one kind of KV. For any thread; two may write the same file: it is the same to the bit."""

    def __init__(
        self,
        directory: Callable[[bool], StateDirectory],
        key: bytes,
        block_bytes: int,
        report: Report,
    ) -> None:
        """directory: opens it, and makes it if told so; raises OSError.
        key: known only to those for whom KV means the same.
        """
        self.block_bytes = block_bytes
        self.file_bytes = HEADER_BYTES + block_bytes
        self._open_directory = directory
        self._directory: StateDirectory | None = None
        self._names_key = derive_key(key, b"names of files")
        self._mac_key = derive_key(key, b"contents of files")
        self._report = report

    def root(self, namespace: str) -> bytes:
        """What stands for the block before a first one."""
        return derive_key(self._names_key, namespace.encode())

    def behind(self, parent: bytes, tokens: bytes) -> StoredBlock:
        """The block with these tokens, int32, behind one with this key."""
        return StoredBlock(parent, tokens, blake3(parent + tokens, key=self._names_key).digest())

    def has(self, block: StoredBlock) -> bool:
        """Whether there is a file of the right size."""
        try:
            return self._may_be_one(self._existing().status(block.file_name))
        except OSError:
            return False

    def following(self, block: StoredBlock) -> bytes:
        """Tokens of the block that was used last behind this one; empty if that is not known."""
        with suppress(OSError), self._existing().opened(block.file_name, os.O_RDONLY) as file:
            hint = os.pread(file, _HINT.size, _HINT_OFFSET)
            if len(hint) == _HINT.size:
                num_tokens, tokens = _HINT.unpack(hint)
                return bytes(tokens[: _TOKEN_BYTES * num_tokens])
        return b""

    def read(self, block: StoredBlock, target: NDArray[np.uint8]) -> bool:
        """Fills target [block_bytes]; False, and it holds anything, if there is no sound file.

        A file that is not sound is removed.
        """
        header = bytearray(HEADER_BYTES)
        try:
            with self._existing().opened(block.file_name, os.O_RDONLY) as file:
                num_bytes = os.preadv(file, [header, target.data], 0)
        except FileNotFoundError:  # others may have needed its place
            return False
        except OSError as error:
            self._report("cannot read cached prefixes", error)
            return False
        front = self._front(block)
        sound = front + self._mac(front, target)
        if num_bytes == self.file_bytes and hmac.compare_digest(header[: len(sound)], sound):
            return True
        self._report("removed a damaged or foreign file of a cached prefix", None)
        with suppress(OSError):
            self._existing().remove(block.file_name)
        return False

    def write(
        self, block: StoredBlock, content: NDArray[np.uint8], following: bytes, modified_ns: int
    ) -> bool:
        """Makes a file, of the given age, if there is none; otherwise its hint and its age are changed.

        content: [block_bytes]. Whether one was made. Raises OSError where none could be made at all.
        """
        hint = _HINT.pack(len(following) // _TOKEN_BYTES, following)
        if self._renew(block, hint, modified_ns):
            return False
        front = self._front(block)
        header = (front + self._mac(front, content) + hint).ljust(HEADER_BYTES, b"\0")
        try:
            self._make(block, [header, content.data], modified_ns)
        except FileNotFoundError:  # the directory is not there, or no longer
            self._directory = self._open_directory(True)
            self._make(block, [header, content.data], modified_ns)
        except IsADirectoryError as error:
            self._report("a directory is in the way of a cached prefix", error)
            return False
        return True

    def _existing(self) -> StateDirectory:
        if self._directory is None:
            self._directory = self._open_directory(False)
        return self._directory

    def _may_be_one(self, status: os.stat_result) -> bool:
        return stat.S_ISREG(status.st_mode) and status.st_size == self.file_bytes

    def _front(self, block: StoredBlock) -> bytes:
        num_tokens = len(block.tokens) // _TOKEN_BYTES
        return _FRONT.pack(_MAGIC, VERSION, num_tokens, self.block_bytes, block.parent, block.tokens)

    def _mac(self, front: bytes, content: NDArray[np.uint8]) -> bytes:
        return blake3(front, key=self._mac_key).update(content.data).digest()

    def _renew(self, block: StoredBlock, hint: bytes, modified_ns: int) -> bool:
        with suppress(OSError), self._existing().opened(block.file_name, os.O_WRONLY) as file:
            if self._may_be_one(os.fstat(file)):
                os.pwrite(file, hint, _HINT_OFFSET)
                os.utime(file, ns=(modified_ns, modified_ns))
                return True
        return False  # nothing, or nothing that we made

    def _make(self, block: StoredBlock, parts: list[bytes | memoryview], modified_ns: int) -> None:
        directory = self._existing()
        file, temporary = directory.create_temporary()
        try:
            try:
                if os.writev(file, parts) != self.file_bytes:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.utime(file, ns=(modified_ns, modified_ns))
            finally:
                os.close(file)
            directory.replace(temporary, block.file_name)
        except BaseException:
            with suppress(OSError):
                directory.remove(temporary)
            raise
