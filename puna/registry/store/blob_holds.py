"""Blobs that a model is about to name: nobody who shares the store removes them meanwhile.

Who holds a blob has a shared lock on its file; who removes it takes an exclusive one, and only then looks
whether a manifest names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

from puna.registry.store.files.file_lock import share_lock, try_lock
from puna.registry.store.files.regular_file import open_regular


class BlobHolds:
    """Use it in a `with` block, at whose end they are let go. Not to be used by two threads at once."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> BlobHolds:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def hold(self, path: Path, num_bytes: int | None = None) -> bool:
        """Holds the blob at `path`; False if there is none, of this size. Waits for who is removing it."""
        with ExitStack() as opened:
            try:
                descriptor = open_regular(path)
                opened.callback(os.close, descriptor)
                if num_bytes is not None and os.fstat(descriptor).st_size != num_bytes:
                    return False
                share_lock(descriptor)
                if not is_at(path, descriptor):
                    return False
            except OSError:
                return False
            self._stack.push(opened.pop_all())
        return True


@contextmanager
def unheld(path: Path) -> Iterator[bool]:
    """Whether nobody holds the blob at `path`; until the end of the block nobody does then."""
    with ExitStack() as opened:
        try:
            descriptor = open_regular(path)
            opened.callback(os.close, descriptor)
            is_free = try_lock(descriptor)
        except OSError:  # it is not there, or nobody could hold it
            is_free = True
        yield is_free


def is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is still the one of this name: it may have been renamed or deleted. Raises
    OSError.
    """
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
