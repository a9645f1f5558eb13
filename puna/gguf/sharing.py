"""Parts of one file in another: in common where the file system can, else copied."""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from puna.gguf.writer import BLOCK_BYTES

_CLONE_RANGE = 0x4020940D
"""FICLONERANGE of include/uapi/linux/fs.h; its argument is a struct file_clone_range."""
_CHUNK_BYTES = 1 << 22
_SPARE_BYTES = 256 << 20
"""Of a disk, for others."""


def share(source: int, begin: int, target: int, place: int, num_bytes: int) -> int:
    """Puts the bytes of the file `source` that begin at `begin` into the file `target`, at `place`; both are
    descriptors. How many of them are on disk once: whole blocks that lie alike in both files, where the file
    system can have files share some. Raises OSError; EOFError: the source is shorter.
    """
    head = min(-begin % BLOCK_BYTES, num_bytes)
    blocks = (num_bytes - head) // BLOCK_BYTES * BLOCK_BYTES
    if (
        blocks == 0
        or (begin - place) % BLOCK_BYTES
        or not _clone(source, begin + head, target, place + head, blocks)
    ):
        _copy(source, begin, target, place, num_bytes)
        return 0
    _copy(source, begin, target, place, head)
    done = head + blocks
    _copy(source, begin + done, target, place + done, num_bytes - done)
    return blocks


def _clone(source: int, begin: int, target: int, place: int, num_bytes: int) -> bool:
    """False: the file system does not do that, or the two files are not in the same one."""
    try:
        fcntl.ioctl(target, _CLONE_RANGE, struct.pack("=q3Q", source, begin, num_bytes, place))
    except OSError:
        return False
    return True


def _copy(source: int, begin: int, target: int, place: int, num_bytes: int) -> None:
    buffer = memoryview(bytearray(min(num_bytes, _CHUNK_BYTES)))
    done = 0
    while done < num_bytes:
        count = os.preadv(source, [buffer[: num_bytes - done]], begin + done)
        if not count:
            raise EOFError
        _check_space(target, count)
        written = 0
        while written < count:
            written += os.pwrite(target, buffer[written:count], place + done + written)
        done += count


def _check_space(file: int, num_bytes: int) -> None:
    disk = os.fstatvfs(file)
    if disk.f_bavail * disk.f_frsize < num_bytes + _SPARE_BYTES:
        raise OSError(errno.ENOSPC, f"{_SPARE_BYTES >> 20} MiB of the disk stay free")
