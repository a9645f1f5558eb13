"""KV blocks in files, one each, found by what they hold: of cached prefixes, and of saved sessions.

A block's key is a keyed hash of the key of the block before it and of its own tokens: it stands for all
tokens from the first on. Instead of a block, a namespace comes before a first one. Layers that keep different
tokens form groups, and each group's part of a block is a file of its own. In a file, little-endian:

    magic, version, number of tokens, group, bytes of the block, key of the block before, tokens (int32) | MAC
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from blake3 import blake3

from puna.backends.base import KvGroup
from puna.kv.blocks import BLOCK_TOKENS
from puna.kv.files.state_directory import StateDirectory
from puna.kv.files.state_key import derive_key

if TYPE_CHECKING:  # the daemon, which lists sessions, does without NumPy
    import numpy as np
    from numpy.typing import NDArray

VERSION = 3
"""Changes with the format."""
SUFFIX = ".kv"

_MAGIC = b"puna-blk"
_KEY_BYTES = 32
_MAC_BYTES = 32
TOKEN_BYTES = 4
_TOKENS_BYTES = TOKEN_BYTES * BLOCK_TOKENS
_FRONT = struct.Struct(f"<8sIIIQ{_KEY_BYTES}s{_TOKENS_BYTES}s")
_HINT = struct.Struct(f"<I{_TOKENS_BYTES}s")
_HINT_OFFSET = _FRONT.size + _MAC_BYTES
HEADER_BYTES = 256  # the block then starts on the border of a cache line

_PIECE_BYTES = 1 << 20

Pause = Callable[[], None]
Report = Callable[[str, Exception | None], None]
"""Told (what went wrong, why). Nobody has to do anything about it."""


class UnsoundBlock(OSError):
    """A file that is damaged, forged, or comes from elsewhere."""


class StoredBlock(NamedTuple):
    """The parts of which file names are made."""

    parent: bytes
    """Key of the block before."""
    tokens: bytes
    """int32, at most those of a block."""
    key: bytes

    def file_name(self, group: int = 0) -> str:
        return f"{self.key.hex()}-{group}{SUFFIX}"


class BlockFiles:
    """The files of one kind of KV. For any thread; two may write the same file: it is the same to the bit."""

    def __init__(
        self,
        directory: Callable[[bool], StateDirectory],
        key: bytes,
        groups: Sequence[KvGroup],
        report: Report,
    ) -> None:
        """directory: opens it, and makes it if told so; raises OSError. key: KvIdentity.key()."""
        self.groups = groups
        self._open_directory = directory
        self._directory: StateDirectory | None = None
        self._names_key = derive_key(key, b"names of files")
        self._mac_key = derive_key(key, b"contents of files")
        self._report = report

    def root(self, namespace: str) -> bytes:
        """The name in place of the block before a first one."""
        return derive_key(self._names_key, namespace.encode())

    def behind(self, parent: bytes, tokens: bytes) -> StoredBlock:
        """The block with these tokens, int32, behind one with this key."""
        return StoredBlock(parent, tokens, blake3(parent + tokens, key=self._names_key).digest())

    def chain(self, namespace: str, tokens: bytes) -> list[StoredBlock]:
        """The blocks that hold the tokens, int32, of which the last may be partial."""
        blocks, parent = [], self.root(namespace)
        for start in range(0, len(tokens), _TOKENS_BYTES):
            blocks.append(self.behind(parent, tokens[start : start + _TOKENS_BYTES]))
            parent = blocks[-1].key
        return blocks

    def file_bytes(self, group: int = 0) -> int:
        return HEADER_BYTES + self.groups[group].block_bytes

    def has(self, block: StoredBlock, group: int = 0) -> bool:
        """Whether there is a file of the right size."""
        try:
            return self._may_be_one(self._existing().status(block.file_name(group)), group)
        except OSError:
            return False

    def following(self, block: StoredBlock) -> bytes:
        """Tokens of the block that was used last behind this one; empty if that is not known."""
        with suppress(OSError), self._existing().opened(block.file_name(), os.O_RDONLY) as file:
            hint = os.pread(file, _HINT.size, _HINT_OFFSET)
            if len(hint) == _HINT.size:
                num_tokens, tokens = _HINT.unpack(hint)
                return bytes(tokens[: TOKEN_BYTES * num_tokens])
        return b""

    def set_modified(self, block: StoredBlock, modified_ns: int, group: int = 0) -> None:
        """Changes the age of a file, if there is one."""
        with suppress(OSError):
            self._existing().set_modified(block.file_name(group), modified_ns)

    def read(self, block: StoredBlock, target: NDArray[np.uint8], group: int = 0) -> None:
        """Fills target [block_bytes]. Raises UnsoundBlock, OSError."""
        self._read(block, target.data, group)

    def _read(self, block: StoredBlock, target: memoryview, group: int) -> None:
        header = bytearray(HEADER_BYTES)
        with self._existing().opened(block.file_name(group), os.O_RDONLY) as file:
            num_bytes = os.preadv(file, [header, target], 0)
        front = self._front(block, group)
        sound = front + self._mac(front, target)
        if num_bytes != self.file_bytes(group) or not hmac.compare_digest(header[: len(sound)], sound):
            raise UnsoundBlock(errno.EBADMSG, "damaged, or not ours", block.file_name(group))

    def is_sound(self, block: StoredBlock, group: int = 0) -> bool:
        """Whether there is a file that can be read."""
        try:
            self._read(block, memoryview(bytearray(self.groups[group].block_bytes)), group)
        except OSError:
            return False
        return True

    def read_or_remove(self, block: StoredBlock, target: NDArray[np.uint8], group: int = 0) -> bool:
        """The same; False, and target holds anything, if there is no sound file. An unsound one goes."""
        try:
            self.read(block, target, group)
        except FileNotFoundError:  # others may have needed its place
            return False
        except UnsoundBlock:
            self._report("removed a damaged or foreign file of a cached prefix", None)
            with suppress(OSError):
                self._existing().remove(block.file_name(group))
            return False
        except OSError as error:
            self._report("cannot read cached prefixes", error)
            return False
        return True

    def write(
        self,
        block: StoredBlock,
        content: NDArray[np.uint8],
        following: bytes,
        modified_ns: int,
        group: int = 0,
        pause: Pause | None = None,
    ) -> bool:
        """Makes a file, of the given age, if there is none; otherwise its hint and its age are changed.

        content: [block_bytes]. pause: called now and then while a large one is written. Whether one was
        made. Raises OSError where none could be made at all.
        """
        if self.renew(block, following, modified_ns, group):
            return False
        try:
            self.replace(block, content, following, modified_ns, group, pause)
        except IsADirectoryError as error:
            self._report("a directory is in the way of a cached prefix", error)
            return False
        return True

    def renew(self, block: StoredBlock, following: bytes, modified_ns: int, group: int = 0) -> bool:
        """Changes hint and age of a file; False: there is none."""
        name = block.file_name(group)
        with suppress(OSError), self._existing().opened(name, os.O_WRONLY) as file:
            if self._may_be_one(os.fstat(file), group):
                os.pwrite(file, _packed_hint(following), _HINT_OFFSET)
                os.utime(file, ns=(modified_ns, modified_ns))
                return True
        return False  # nothing, or nothing that we made

    def replace(
        self,
        block: StoredBlock,
        content: NDArray[np.uint8],
        following: bytes,
        modified_ns: int,
        group: int = 0,
        pause: Pause | None = None,
    ) -> None:
        """Makes a file whatever is there. Raises OSError."""
        front = self._front(block, group)
        mac = self._mac(front, content.data, pause)
        header = (front + mac + _packed_hint(following)).ljust(HEADER_BYTES, b"\0")
        try:
            self._make(block.file_name(group), header, content.data, modified_ns, pause)
        except FileNotFoundError:  # the directory is not there, or no longer
            self._directory = self._open_directory(True)
            self._make(block.file_name(group), header, content.data, modified_ns, pause)

    def sync(self, block: StoredBlock, group: int = 0) -> None:
        """Waits until the file is on disk. Raises OSError."""
        with self._existing().opened(block.file_name(group), os.O_RDONLY) as file:
            os.fsync(file)

    def _existing(self) -> StateDirectory:
        if self._directory is None:
            self._directory = self._open_directory(False)
        return self._directory

    def _may_be_one(self, status: os.stat_result, group: int) -> bool:
        return stat.S_ISREG(status.st_mode) and status.st_size == self.file_bytes(group)

    def _front(self, block: StoredBlock, group: int) -> bytes:
        num_tokens = len(block.tokens) // TOKEN_BYTES
        block_bytes = self.groups[group].block_bytes
        return _FRONT.pack(_MAGIC, VERSION, num_tokens, group, block_bytes, block.parent, block.tokens)

    def _mac(self, front: bytes, content: memoryview, pause: Pause | None = None) -> bytes:
        mac = blake3(front, key=self._mac_key)
        for piece in _pieces(content, pause):
            mac.update(piece)
        return mac.digest()

    def _make(
        self, name: str, header: bytes, content: memoryview, modified_ns: int, pause: Pause | None
    ) -> None:
        directory = self._existing()
        file, temporary = directory.create_temporary()
        try:
            try:
                for piece in _pieces(content, pause):
                    if os.writev(file, [header, piece]) != len(header) + len(piece):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    header = b""
                os.utime(file, ns=(modified_ns, modified_ns))
            finally:
                os.close(file)
            directory.replace(temporary, name)
        except BaseException:
            with suppress(OSError):
                directory.remove(temporary)
            raise


def _pieces(content: memoryview, pause: Pause | None) -> Iterator[memoryview]:
    for begin in range(0, len(content), _PIECE_BYTES):
        if begin and pause is not None:
            pause()
        yield content[begin : begin + _PIECE_BYTES]


def _packed_hint(following: bytes) -> bytes:
    return _HINT.pack(len(following) // TOKEN_BYTES, following)
