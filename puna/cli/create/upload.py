"""Handing files to the server: it never opens a path that a request names."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from puna.cli.client import Client
from puna.cli.create.files import blob_of
from puna.cli.errors import CliError
from puna.cli.output.progress import ProgressDisplay, read_with_progress

GATHERING = "gathering model components"
_CHUNK_BYTES = 4 << 20
_REFRESH_S = 0.1


def upload(client: Client, files: Mapping[str, Path], display: ProgressDisplay) -> dict[str, str]:
    """Digests by the files' names; afterwards the server has them all. The next file is hashed while one is
    sent. A file that is named as a blob that the server has is taken for that.
    Raises CliError, ServerError, NotRunning.
    """
    hashing = _Hashing()
    digests: dict[str, str] = {}
    with ThreadPoolExecutor(max_workers=1) as pool:
        try:
            futures = {}
            for name, path in files.items():
                if (blob := blob_of(path)) and client.has_blob(blob):
                    digests[name] = blob
                else:
                    hashing.total += _size(path)
                    futures[name] = pool.submit(hashing.digest, path)
            for name, future in futures.items():
                digests[name] = hashing.wait_for(future, display)
                if not client.has_blob(digests[name]):
                    _send(client, files[name], digests[name], display)
        finally:
            hashing.cancelled.set()
            pool.shutdown(cancel_futures=True)
    return digests


class _Hashing:
    """In another thread than the display."""

    def __init__(self) -> None:
        self.total = 0
        self.cancelled = threading.Event()
        self._completed = 0

    def digest(self, path: Path) -> str:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while (chunk := file.read(_CHUNK_BYTES)) and not self.cancelled.is_set():
                digest.update(chunk)
                self._completed += len(chunk)
        return f"sha256:{digest.hexdigest()}"

    def wait_for(self, future: Future[str], display: ProgressDisplay) -> str:
        while not wait([future], timeout=_REFRESH_S).done:
            display.transfer(GATHERING, self._completed, self.total)
        display.transfer(GATHERING, self._completed, self.total)
        try:
            return future.result()
        except OSError as error:
            raise CliError(f"{error.filename}: {error.strerror or error}") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}") from error


def _send(client: Client, path: Path, digest: str, display: ProgressDisplay) -> None:
    try:
        chunks = read_with_progress(path, f"copying file {digest}", display)
        client.upload_blob(digest, path.stat().st_size, chunks)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}") from error
