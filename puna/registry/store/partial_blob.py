"""A blob that is being downloaded: written in any order, hashed as its beginning becomes complete."""

from __future__ import annotations

import bisect
import hashlib
import os
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from puna.registry.digest import Digest, blob_file_name
from puna.registry.errors import DigestMismatch
from puna.registry.store.blob_holds import is_at
from puna.registry.store.files.file_lock import try_lock, unlock
from puna.registry.store.files.free_space import check_free_space
from puna.registry.store.files.reported import reported
from puna.registry.store.part_files import (
    Part,
    delete_parts,
    load_parts,
    partial_path,
    save_part,
)

_MIN_PART_BYTES = 16 << 20
_MAX_PART_BYTES = 1000 << 20
_MAX_NUM_PARTS = 256
_READ_BYTES = 1 << 20


class PartialBlob:
    """The unfinished download of one blob, which nobody else writes meanwhile; use it in a `with` block.

    What has been written outlives the process, and is there again when the same blob is opened next.
    `write` may be called from several threads for different parts, `hash_on` from one at a time.
    """

    def __init__(self, path: Path, digest: Digest, descriptor: int, parts: list[Part]) -> None:
        self.path = path
        self.digest = digest
        self.parts = parts
        """In order and without gaps."""
        self.num_bytes = parts[-1].end if parts else 0
        self.num_hashed = 0
        self._descriptor = descriptor
        self._hash = hashlib.sha256()
        self._read = bytearray(_READ_BYTES)
        self._offsets = [part.offset for part in parts]
        self._num_whole = 0
        """So many parts from the first on are complete."""

    @classmethod
    def open(cls, directory: Path, digest: Digest, num_bytes: int) -> PartialBlob | None:
        """None if somebody else downloads it, or just has. Raises StoreError."""
        with reported("cannot write to the store"):
            directory.mkdir(parents=True, exist_ok=True)
            path = partial_path(directory / blob_file_name(digest))
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(path, flags, 0o644)
            try:
                if not try_lock(descriptor) or not is_at(path, descriptor):
                    os.close(descriptor)
                    return None
                file_bytes = os.fstat(descriptor).st_size
                part_bytes = min(max(num_bytes // _MAX_NUM_PARTS + 1, _MIN_PART_BYTES), _MAX_PART_BYTES)
                parts = load_parts(path, num_bytes, file_bytes, part_bytes)
                os.ftruncate(descriptor, num_bytes)
            except BaseException:
                with suppress(OSError):
                    os.close(descriptor)
                raise
        return cls(path, digest, descriptor, parts)

    def __enter__(self) -> PartialBlob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of it; who wants can go on with it."""
        os.close(self._descriptor)

    @property
    def completed(self) -> int:
        """Bytes that are there."""
        return sum(part.completed for part in self.parts)

    @property
    def prefix(self) -> int:
        """So many bytes from the first on are there."""
        num_whole = self._num_whole
        while num_whole < len(self.parts) and not self.parts[num_whole].num_missing:
            num_whole += 1
        self._num_whole = num_whole
        return self.parts[num_whole].position if num_whole < len(self.parts) else self.num_bytes

    def write(self, position: int, data: bytes) -> None:
        """Writes what is not there yet, and records it. Bytes before `position` must be there, from the
        beginning of its part on. Raises StoreError.
        """
        view = memoryview(data)
        check_free_space(self.path.parent, len(data))
        while view:
            part = self.parts[bisect.bisect_right(self._offsets, position) - 1]
            piece, view = view[: part.end - position], view[part.end - position :]
            missing = piece[max(part.position - position, 0) :]
            if missing:
                with reported("cannot write to the store"):
                    _write_all(self._descriptor, missing, part.position)
                    part.completed += len(missing)
                    save_part(self.path, part)
            position += len(piece)

    def hash_on(self, most: int, stop: threading.Event) -> None:
        """Hashes what is there behind what has been hashed, up to `most` bytes. Raises StoreError."""
        end = min(self.prefix, self.num_hashed + most)
        with reported("cannot read from the store"):
            while self.num_hashed < end and not stop.is_set():
                into = memoryview(self._read)[: end - self.num_hashed]
                num_read = os.preadv(self._descriptor, [into], self.num_hashed)
                if not num_read:
                    raise OSError(f"{self.path.name} was cut short")
                self._hash.update(into[:num_read])
                self.num_hashed += num_read

    def sync(self) -> None:
        """Brings what has been written to the disk, so that the end need not wait for all of it. Raises
        StoreError.
        """
        with reported("cannot write to the store"):
            os.fdatasync(self._descriptor)

    def commit(self) -> None:
        """Makes a blob of it, when all of it is there and hashed. Raises DigestMismatch, StoreError.

        What is not what it should be is deleted.
        """
        assert self.num_hashed == self.num_bytes
        digest = Digest("sha256:" + self._hash.hexdigest())
        if digest != self.digest:
            self.discard()
            raise DigestMismatch(self.digest, digest)
        with reported("cannot write to the store"):
            os.fsync(self._descriptor)  # a power cut must not leave holes under a blob's name
            os.fchmod(self._descriptor, 0o644)
            # First the name: without their records, the bytes would be fetched again after a kill.
            self.path.replace(self.path.with_name(blob_file_name(self.digest)))
            delete_parts(self.path)
            unlock(self._descriptor)  # it is a blob now, which others may hold

    def discard(self) -> None:
        """Deletes everything. Raises StoreError."""
        with reported("cannot write to the store"):
            delete_parts(self.path)
            self.path.unlink(missing_ok=True)


def _write_all(descriptor: int, data: memoryview, position: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, position)
        data, position = data[written:], position + written
