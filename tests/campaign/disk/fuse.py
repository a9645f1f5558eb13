"""A file system that fills up, fails and hangs when it is told to: Linux's FUSE protocol, spoken directly.

It passes everything on to a directory, in a process of its own: `python -m tests.campaign.disk.fuse`. One
thread answers one request after the other, so that a disk that hangs does so for everybody, in every
operation. Structures are those of linux/fuse.h, protocol 7.31.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.campaign.disk.disk import Control, map_control

_IN_HEADER = struct.Struct("<IIQQIIII")  # length, opcode, unique, node, uid, gid, pid, padding
_OUT_HEADER = struct.Struct("<IiQ")  # length, error, unique
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ROOT = 1
_MAX_WRITE = 1 << 17
_BUFFER_BYTES = _MAX_WRITE + (1 << 16)

_BIG_WRITES, _MAX_PAGES = 1 << 5, 1 << 22
_FATTR_MODE, _FATTR_SIZE, _FATTR_ATIME, _FATTR_MTIME = 1 << 0, 1 << 3, 1 << 4, 1 << 5
_FATTR_ATIME_NOW, _FATTR_MTIME_NOW = 1 << 7, 1 << 8

(_LOOKUP, _FORGET, _GETATTR, _SETATTR) = (1, 2, 3, 4)
(_MKDIR, _UNLINK, _RMDIR, _RENAME, _LINK) = (9, 10, 11, 12, 13)
(_OPEN, _READ, _WRITE, _STATFS, _RELEASE, _FSYNC, _FLUSH) = (14, 15, 16, 17, 18, 20, 25)
(_INIT, _OPENDIR, _READDIR, _RELEASEDIR, _FSYNCDIR) = (26, 27, 28, 29, 30)
(_CREATE, _INTERRUPT, _DESTROY, _BATCH_FORGET, _RENAME2) = (35, 36, 38, 42, 45)
_WRITING = {_MKDIR, _LINK, _WRITE, _FSYNC, _FSYNCDIR, _CREATE, _RENAME, _RENAME2}
_UNANSWERED = {_FORGET, _BATCH_FORGET, _INTERRUPT}


class _FileSystem:
    """Answers for `backing` what comes from the device."""

    def __init__(self, backing: Path, device: int, control: Control) -> None:
        self._paths: dict[int, str] = {_ROOT: str(backing)}
        self._nodes: dict[str, int] = {str(backing): _ROOT}
        self._num_nodes = _ROOT
        self._device = device
        self._control = control

    def serve(self) -> None:
        """Until it is unmounted."""
        while True:
            try:
                request = os.read(self._device, _BUFFER_BYTES)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return  # ENODEV: it is mounted no longer
            while (left_s := self._control.hangs_until_s - time.monotonic()) > 0:
                time.sleep(min(left_s, 0.05))
            self._handle(request)

    def _handle(self, request: bytes) -> None:
        _, opcode, unique, node, _, _, _, _ = _IN_HEADER.unpack_from(request)
        if opcode in _UNANSWERED:
            return
        content, error = b"", 0
        try:
            if opcode in _WRITING:
                self._control.num_writes += 1
                if 0 < self._control.full_at <= self._control.num_writes:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            operation = _OPERATIONS.get(opcode)
            if operation is None:
                raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
            content = operation(self, node, request[_IN_HEADER.size :])
        except OSError as failure:
            error = failure.errno or errno.EIO
        with suppress(OSError):  # whoever asked is dead
            os.write(
                self._device, _OUT_HEADER.pack(_OUT_HEADER.size + len(content), -error, unique) + content
            )

    # Nodes

    def _path(self, node: int, name: bytes = b"") -> str:
        path = self._paths.get(node)
        if path is None:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return f"{path}/{name.decode()}" if name else path

    def _entry(self, path: str) -> bytes:
        attributes = _attributes(os.lstat(path), self._node(path))
        return struct.pack("<QQQQII", self._node(path), 0, 0, 0, 0, 0) + attributes

    def _node(self, path: str) -> int:
        if path not in self._nodes:
            self._num_nodes += 1
            self._nodes[path] = self._num_nodes
            self._paths[self._num_nodes] = path
        return self._nodes[path]

    def _forget_path(self, path: str) -> None:
        """An open file goes on by its handle."""
        self._nodes.pop(path, None)

    # Operations: content of the request -> content of the answer; OSError is the answer, too

    def _init(self, _node: int, content: bytes) -> bytes:
        _, minor, max_readahead, _ = struct.unpack_from("<IIII", content)
        pages = _MAX_WRITE // 4096
        settings = (
            7,
            min(minor, 31),
            max_readahead,
            _BIG_WRITES | _MAX_PAGES,
            12,
            10,
            _MAX_WRITE,
            1,
            pages,
            0,
        )
        return struct.pack("<IIIIHHIIHH", *settings) + bytes(32)

    def _lookup(self, node: int, content: bytes) -> bytes:
        return self._entry(self._path(node, content.rstrip(b"\0")))

    def _getattr(self, node: int, content: bytes) -> bytes:
        flags, _, handle = struct.unpack_from("<IIQ", content)
        status = os.fstat(handle) if flags & 1 else os.lstat(self._path(node))
        return struct.pack("<QII", 0, 0, 0) + _attributes(status, node)

    def _setattr(self, node: int, content: bytes) -> bytes:
        (valid, _, handle, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, _, _, _) = struct.unpack(
            "<IIQQQQQQIIIIIIII", content[:88]
        )
        target: str | int = handle if valid & (1 << 6) else self._path(node)
        if valid & _FATTR_MODE:
            os.chmod(target, stat.S_IMODE(mode))  # noqa: PTH101 perhaps a descriptor
        if valid & _FATTR_SIZE:
            os.truncate(target, size)
        if valid & (_FATTR_ATIME | _FATTR_MTIME):
            now, old = time.time_ns(), os.stat(target)  # noqa: PTH116 perhaps a descriptor
            new_atime = now if valid & _FATTR_ATIME_NOW else atime * 10**9 + atime_ns
            new_mtime = now if valid & _FATTR_MTIME_NOW else mtime * 10**9 + mtime_ns
            times = (
                new_atime if valid & _FATTR_ATIME else old.st_atime_ns,
                new_mtime if valid & _FATTR_MTIME else old.st_mtime_ns,
            )
            os.utime(target, ns=times)
        status = os.fstat(target) if isinstance(target, int) else os.lstat(target)
        return struct.pack("<QII", 0, 0, 0) + _attributes(status, node)

    def _mkdir(self, node: int, content: bytes) -> bytes:
        mode, umask = struct.unpack_from("<II", content)
        path = self._path(node, content[8:].rstrip(b"\0"))
        os.mkdir(path, mode & ~umask)  # noqa: PTH102
        return self._entry(path)

    def _unlink(self, node: int, content: bytes) -> bytes:
        path = self._path(node, content.rstrip(b"\0"))
        os.unlink(path)  # noqa: PTH108
        self._forget_path(path)
        return b""

    def _rmdir(self, node: int, content: bytes) -> bytes:
        path = self._path(node, content.rstrip(b"\0"))
        os.rmdir(path)  # noqa: PTH106
        self._forget_path(path)
        return b""

    def _rename(self, node: int, content: bytes) -> bytes:
        return self._rename_to(node, struct.unpack_from("<Q", content)[0], content[8:])

    def _rename2(self, node: int, content: bytes) -> bytes:
        return self._rename_to(node, struct.unpack_from("<Q", content)[0], content[16:])

    def _rename_to(self, node: int, new_parent: int, names: bytes) -> bytes:
        source, target = names.split(b"\0")[:2]
        old, new = self._path(node, source), self._path(new_parent, target)
        os.rename(old, new)  # noqa: PTH104
        self._forget_path(new)
        moved = self._node(old)
        self._forget_path(old)
        self._nodes[new] = moved
        self._paths[moved] = new
        return b""

    def _link(self, node: int, content: bytes) -> bytes:
        (old,) = struct.unpack_from("<Q", content)
        path = self._path(node, content[8:].rstrip(b"\0"))
        os.link(self._path(old), path)
        return self._entry(path)

    def _open(self, node: int, content: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", content)
        handle = os.open(self._path(node), flags & ~os.O_NOFOLLOW)
        return struct.pack("<QII", handle, 0, 0)

    def _create(self, node: int, content: bytes) -> bytes:
        flags, mode, umask, _ = struct.unpack_from("<IIII", content)
        path = self._path(node, content[16:].rstrip(b"\0"))
        handle = os.open(path, flags | os.O_CREAT, mode & ~umask)
        return self._entry(path) + struct.pack("<QII", handle, 0, 0)

    def _read(self, _node: int, content: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", content)
        return os.pread(handle, size, offset)

    def _write(self, _node: int, content: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", content)
        return struct.pack("<II", os.pwrite(handle, content[40 : 40 + size], offset), 0)

    def _statfs(self, node: int, _content: bytes) -> bytes:
        status = os.statvfs(self._path(node))
        blocks = (status.f_blocks, status.f_bfree, status.f_bavail, status.f_files, status.f_ffree)
        return struct.pack("<QQQQQIIII", *blocks, status.f_bsize, 255, status.f_frsize, 0) + bytes(24)

    def _release(self, _node: int, content: bytes) -> bytes:
        os.close(struct.unpack_from("<Q", content)[0])
        return b""

    def _fsync(self, _node: int, content: bytes) -> bytes:
        os.fsync(struct.unpack_from("<Q", content)[0])
        return b""

    def _readdir(self, node: int, content: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", content)
        found = b""
        with os.scandir(self._path(node)) as entries:
            listed = sorted((entry.name, entry.is_dir()) for entry in entries)
        for at, (name, is_dir) in list(enumerate(listed, start=1))[offset:]:
            encoded = name.encode()
            kind = (stat.S_IFDIR if is_dir else stat.S_IFREG) >> 12
            entry = struct.pack("<QQII", at, at, len(encoded), kind) + encoded
            entry += bytes(-len(entry) % 8)
            if len(found) + len(entry) > size:
                break
            found += entry
        return found

    def _nothing(self, _node: int, _content: bytes) -> bytes:
        return b""

    def _opened_directory(self, _node: int, _content: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0)


def _attributes(status: os.stat_result, node: int) -> bytes:
    times_ns = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
    seconds, fractions = zip(*(divmod(time_ns, 10**9) for time_ns in times_ns), strict=True)
    kind = (status.st_mode, status.st_nlink, status.st_uid, status.st_gid)
    return _ATTRIBUTES.pack(node, status.st_size, status.st_blocks, *seconds, *fractions, *kind, 0, 4096, 0)


def _mount(device: int, mountpoint: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
    if libc.mount(b"puna", str(mountpoint).encode(), b"fuse", 0, options) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(mountpoint))


_OPERATIONS: dict[int, Callable[[_FileSystem, int, bytes], bytes]] = {
    _INIT: _FileSystem._init,
    _LOOKUP: _FileSystem._lookup,
    _GETATTR: _FileSystem._getattr,
    _SETATTR: _FileSystem._setattr,
    _MKDIR: _FileSystem._mkdir,
    _UNLINK: _FileSystem._unlink,
    _RMDIR: _FileSystem._rmdir,
    _RENAME: _FileSystem._rename,
    _RENAME2: _FileSystem._rename2,
    _LINK: _FileSystem._link,
    _OPEN: _FileSystem._open,
    _CREATE: _FileSystem._create,
    _READ: _FileSystem._read,
    _WRITE: _FileSystem._write,
    _STATFS: _FileSystem._statfs,
    _RELEASE: _FileSystem._release,
    _FSYNC: _FileSystem._fsync,
    _FSYNCDIR: _FileSystem._nothing,
    _FLUSH: _FileSystem._nothing,
    _OPENDIR: _FileSystem._opened_directory,
    _READDIR: _FileSystem._readdir,
    _RELEASEDIR: _FileSystem._nothing,
    _DESTROY: _FileSystem._nothing,
}


def main() -> None:
    """backing, mountpoint, file of the Control"""
    backing, mountpoint, control = map(Path, sys.argv[1:])
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    _mount(device, mountpoint)
    _FileSystem(backing, device, map_control(control)).serve()


if __name__ == "__main__":
    main()
