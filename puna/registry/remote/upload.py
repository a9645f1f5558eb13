"""Uploading a blob: in parts, to the registry or to where it redirects them, gone on with after a drop."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple, TypeVar

import httpx

from puna.registry.digest import Digest
from puna.registry.errors import RemoteError, StoreError
from puna.registry.remote.client import RegistryClient, first_of, location_of
from puna.registry.remote.download import Patience

T = TypeVar("T")

_NUM_STREAMS = 16
_MIN_PART_BYTES, _MAX_PART_BYTES = 100 * 10**6, 1000 * 10**6
_PIECE_BYTES = 1 << 20
_NUM_SESSIONS = 3
_GONE, _OUT_OF_ORDER = 404, 416
_PASSING = (None, 408, 425, 429, _OUT_OF_ORDER, 500, 502, 503, 504)
"""Statuses of what may be better a moment later; None: there was no answer."""
_SLOW_ANSWER_S = 600.0
"""Registries may read all of a blob again before they say that they have it."""
_KEPT = re.compile(r"(?:bytes=)?0-(\d{1,18})", re.ASCII)
_BYTES = {"Content-Type": "application/octet-stream"}


class Part(NamedTuple):
    """Bytes of the blob that are sent at once."""

    start: int
    end: int


def parts_of(num_bytes: int) -> list[Part]:
    """A sixteenth each, within limits, as Ollama cuts blobs."""
    size = min(max(num_bytes // _NUM_STREAMS, _MIN_PART_BYTES), _MAX_PART_BYTES)
    return [Part(start, min(start + size, num_bytes)) for start in range(0, num_bytes, size)]


class BlobUpload:
    """Of the blob behind the descriptor `file`, which stays the caller's, to a repository."""

    def __init__(
        self, client: RegistryClient, repository: str, digest: Digest, file: int, patience: Patience
    ) -> None:
        self._client = client
        self._blobs = f"/v2/{repository}/blobs/"
        self._digest = digest
        self._file = file
        self._patience = patience
        self._parts = parts_of(os.fstat(file).st_size)
        self._sent: dict[Part, int] = {}
        self._room = asyncio.Semaphore(_NUM_STREAMS)

    @property
    def completed(self) -> int:
        """Bytes that are sent."""
        return sum(self._sent.values())

    async def run(self, source: str = "") -> None:
        """Until the registry has the blob. source: a repository of its that may have it already.

        Raises RemoteError, StoreError, AccessDenied, SigningKeyError.
        """
        for num_left in reversed(range(_NUM_SESSIONS)):
            try:
                return await self._attempt(source)
            except BaseExceptionGroup as errors:
                raise first_of(errors) from None
            except RemoteError as error:
                if error.status != _GONE or not num_left:
                    raise
                self._sent.clear()  # the registry has forgotten the upload, perhaps because it is done

    async def _attempt(self, source: str) -> None:
        if await self._persistently(self._is_there):
            return
        url = await self._persistently(lambda: self._begin(source))
        if url is None:
            return
        hashes = asyncio.create_task(asyncio.to_thread(self._hash))
        try:
            async with asyncio.TaskGroup() as redirected:
                for part in self._parts:
                    await self._room.acquire()
                    url = await self._send(url, part, redirected)
            await self._finish(url, await hashes)
        finally:
            hashes.cancel()

    async def _persistently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Tries again after what may pass."""
        for pause_s in self._patience.after_nothing:
            try:
                return await attempt()
            except RemoteError as error:
                if error.status not in _PASSING:
                    raise
            await asyncio.sleep(pause_s)
        return await attempt()

    async def _is_there(self) -> bool:
        try:
            await self._client.ask("HEAD", self._client.url(self._blobs + self._digest))
        except RemoteError as error:
            if error.status != _GONE:
                raise
            return False
        return True

    async def _begin(self, source: str) -> httpx.URL | None:
        """Where to send the first part; None if the registry took the blob from `source`."""
        url = self._client.url(self._blobs + "uploads/")
        if source:
            url = url.copy_merge_params({"mount": self._digest, "from": source})
        answer = await self._client.ask("POST", url)
        return None if answer.status_code == httpx.codes.CREATED else _next(answer)

    async def _send(self, url: httpx.URL, part: Part, redirected: asyncio.TaskGroup) -> httpx.URL:
        """Sends a part, or begins to send it to where the registry wants it. Returns where the next one goes."""
        offset, is_known = part.start, True

        async def attempt() -> httpx.URL:
            nonlocal url, offset, is_known
            if not is_known:
                url, offset = await self._position(url, part)
            is_known = False
            if offset == part.end:  # only the answer was lost
                return url
            answer = await self._send_bytes("PATCH", url, part, offset)
            if answer.status_code == httpx.codes.TEMPORARY_REDIRECT:
                redirected.create_task(self._send_elsewhere(location_of(answer, "Location"), part))
            else:
                self._sent[part] = part.end - part.start
                self._room.release()
            return _next(answer)

        return await self._persistently(attempt)

    async def _send_elsewhere(self, url: httpx.URL, part: Part) -> None:
        await self._persistently(lambda: self._send_bytes("PUT", url, part, part.start))
        self._room.release()

    async def _send_bytes(self, method: str, url: httpx.URL, part: Part, offset: int) -> httpx.Response:
        headers = {"Content-Length": str(part.end - offset), **_BYTES}
        if method == "PATCH":
            headers |= {"Content-Range": f"{offset}-{part.end - 1}", "X-Redirect-Uploads": "1"}
        body = _Body(self._file, part, offset, self._sent)
        try:
            return await self._client.ask(method, url, headers, body, timeout_s=_SLOW_ANSWER_S)
        except BaseException:
            self._sent[part] = offset - part.start
            raise

    async def _position(self, url: httpx.URL, part: Part) -> tuple[httpx.URL, int]:
        """After a part was broken off: where to go on, and from which byte."""
        try:
            answer = await self._client.ask("GET", url)
        except RemoteError as error:
            if error.status in _PASSING or error.status == _GONE:
                raise
            return url, part.start  # it does not tell, so all of the part is sent again
        kept = _KEPT.fullmatch(answer.headers.get("range", ""))
        offset = int(kept[1]) + 1 if kept and kept[1] != "0" else 0
        if not part.start <= offset <= part.end:
            raise RemoteError(f"the registry has {offset} bytes, other than it was sent", _GONE)
        return _next(answer, url), offset

    async def _finish(self, url: httpx.URL, etag: str) -> None:
        url = url.copy_merge_params({"digest": self._digest, "etag": etag})
        await self._persistently(
            lambda: self._client.ask("PUT", url, dict(_BYTES), timeout_s=_SLOW_ANSWER_S)
        )

    def _hash(self) -> str:
        """As S3 names what it got in parts."""
        hashes = b"".join(map(self._hash_of, self._parts))
        return f"{hashlib.md5(hashes, usedforsecurity=False).hexdigest()}-{len(self._parts)}"

    def _hash_of(self, part: Part) -> bytes:
        md5 = hashlib.md5(usedforsecurity=False)
        for offset in range(part.start, part.end, _PIECE_BYTES):
            md5.update(os.pread(self._file, min(_PIECE_BYTES, part.end - offset), offset))
        return md5.digest()


class _Body:
    """The bytes of a part from `offset` on; they can be asked for again, as after a 401."""

    def __init__(self, file: int, part: Part, offset: int, sent: dict[Part, int]) -> None:
        self._file, self._part, self._offset, self._sent = file, part, offset, sent

    async def __aiter__(self) -> AsyncIterator[bytes]:
        position = self._offset
        while position < self._part.end:
            self._sent[self._part] = position - self._part.start
            wanted = min(_PIECE_BYTES, self._part.end - position)
            data = await asyncio.to_thread(os.pread, self._file, wanted, position)
            if not data:
                raise StoreError("a blob was cut short while it was sent")
            position += len(data)
            yield data
        self._sent[self._part] = position - self._part.start


def _next(answer: httpx.Response, default: httpx.URL | None = None) -> httpx.URL:
    """Where the registry wants what comes next."""
    for header in ("Docker-Upload-Location", "Location"):
        if header in answer.headers:
            return location_of(answer, header)
    if default is None:
        raise RemoteError("the registry does not say where to upload to")
    return default
