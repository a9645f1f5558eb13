"""Uploading a blob: in parts, to the registry or to where it redirects them, gone on with after a drop."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import httpx

from puna.registry.digest import Digest
from puna.registry.errors import RemoteError, StoreError
from puna.registry.first_error import first_of
from puna.registry.remote.client import RegistryClient, location_of
from puna.registry.remote.download import Patience

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

T = TypeVar("T")

_MAX_PARTS = 16
_MIN_PART_BYTES, _MAX_PART_BYTES = 100 * 10**6, 1000 * 10**6
_PIECE_BYTES = 1 << 20
_NUM_SESSIONS = 3
_MAX_REDIRECTS = 10
_REFUSED, _GONE, _OUT_OF_ORDER = 400, 404, 416
_BUSY = (408, 425, 429, _OUT_OF_ORDER, 500, 502, 503, 504)
"""Statuses of what may be better a moment later."""
_SLOW_ANSWER_S = 600.0
"""Registries may read all of a blob again before they say that they have it."""
_KEPT = re.compile(r"(?:bytes=)?0-(\d{1,18})", re.ASCII)
_UPLOADS = "Docker-Upload-Location"
_BYTES = {"Content-Type": "application/octet-stream"}


class Part(NamedTuple):
    """Bytes of the blob that are sent at once."""

    start: int
    end: int


def parts_of(num_bytes: int) -> list[Part]:
    """A sixteenth each, within limits, as Ollama cuts blobs."""
    size = min(max(num_bytes // _MAX_PARTS, _MIN_PART_BYTES), _MAX_PART_BYTES)
    return [Part(start, min(start + size, num_bytes)) for start in range(0, num_bytes, size)]


class BlobUpload:
    """Of the blob behind the descriptor `file`, which stays the caller's, to a repository."""

    def __init__(
        self,
        client: RegistryClient,
        repository: str,
        digest: Digest,
        file: int,
        num_streams: int,
        patience: Patience,
    ) -> None:
        self._client = client
        self._blobs = f"{repository}/blobs/"
        self._digest = digest
        self._file = file
        self._num_streams = num_streams
        self._patience = patience
        self._parts = parts_of(os.fstat(file).st_size)
        self._bodies: dict[Part, _Body] = {}

    @property
    def completed(self) -> int:
        """Bytes that are sent."""
        return sum(body.num_sent for body in self._bodies.values())

    async def run(self, source: str = "") -> None:
        """Until the registry has the blob. source: a repository of its that may have it already.

        Raises RemoteError, StoreError, AccessDenied, SigningKeyError.
        """
        for num_left in reversed(range(_NUM_SESSIONS)):
            try:
                await self._attempt(source)
                break
            except RemoteError as error:
                problem: BaseException = error
            except BaseExceptionGroup as errors:
                problem = first_of(errors)
            if getattr(problem, "status", None) != _GONE or not num_left:
                raise problem
            self._bodies.clear()  # the registry has forgotten the upload, perhaps because it is done

    async def _attempt(self, source: str) -> None:
        if await self._persistently(
            self._is_there, _BUSY
        ):  # one who cannot be reached at all is told so at once
            return
        url = await self._persistently(lambda: self._begin(source))
        if url is None:
            return
        room = asyncio.Semaphore(self._num_streams)
        async with asyncio.TaskGroup() as redirected:
            for part in self._parts:
                await room.acquire()
                url, elsewhere = await self._send(url, part)
                if elsewhere is None:
                    room.release()
                else:
                    redirected.create_task(self._send_elsewhere(elsewhere, part, room))
        await self._finish(url)

    async def _persistently(
        self, attempt: Callable[[], Awaitable[T]], passing: tuple[int | None, ...] = (None, *_BUSY)
    ) -> T:
        """Tries again after what may pass: statuses, or None for no answer."""
        for pause_s in self._patience.after_nothing:
            try:
                return await attempt()
            except RemoteError as error:
                if error.status not in passing:
                    raise
            await asyncio.sleep(pause_s)
        return await attempt()

    async def _is_there(self) -> bool:
        url = self._client.url(self._blobs + self._digest)
        try:
            for _ in range(_MAX_REDIRECTS):
                answer = await self._client.ask("HEAD", url)
                if not answer.is_redirect or location_of(answer).host != url.host:
                    break  # where blobs are is known to who has them
                url = location_of(answer)
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
        if answer.is_redirect:
            raise RemoteError(f"{url.host} redirects uploads to {location_of(answer).host}", _REFUSED)
        return None if answer.status_code == httpx.codes.CREATED else _next(answer)

    async def _send(self, url: httpx.URL, part: Part) -> tuple[httpx.URL, httpx.URL | None]:
        """Sends a part. Returns where the next one goes, and where this one does if the registry has it sent
        elsewhere.
        """
        offset, is_known = part.start, True

        async def attempt() -> tuple[httpx.URL, httpx.URL | None]:
            nonlocal url, offset, is_known
            if not is_known:
                url, offset = await self._position(url, part)
            is_known = False
            if offset == part.end:  # only the answer was lost
                await self._bodies[part].read_all()
                return url, None
            answer = await self._send_bytes("PATCH", url, part, offset)
            if answer.is_redirect:
                return _next(answer, url), location_of(answer)
            return _next(answer), None

        return await self._persistently(attempt)

    async def _send_elsewhere(self, url: httpx.URL, part: Part, room: asyncio.Semaphore) -> None:
        answer = await self._persistently(lambda: self._send_bytes("PUT", url, part, part.start))
        if answer.is_redirect:
            raise RemoteError(f"{url.host} redirects a part that was redirected to it", _REFUSED)
        room.release()

    async def _send_bytes(self, method: str, url: httpx.URL, part: Part, offset: int) -> httpx.Response:
        headers = {"Content-Length": str(part.end - offset), **_BYTES}
        if method == "PATCH":
            headers |= {"Content-Range": f"{offset}-{part.end - 1}", "X-Redirect-Uploads": "1"}
        body = _Body(self._file, part, offset)
        self._bodies[part] = body
        return await self._client.ask(method, url, headers, body, patience_s=_SLOW_ANSWER_S)

    async def _position(self, url: httpx.URL, part: Part) -> tuple[httpx.URL, int]:
        """After a part was broken off: where to go on, and from which byte."""
        try:
            answer = await self._client.ask("GET", url)
        except RemoteError as error:
            if error.status in (None, _GONE, *_BUSY):
                raise
            return url, part.start  # it does not tell, so all of the part is sent again
        kept = _KEPT.fullmatch(answer.headers.get("range", ""))
        offset = int(kept[1]) + 1 if kept and kept[1] != "0" else 0
        if not part.start <= offset <= part.end:
            raise RemoteError(f"the registry has {offset} bytes, other than it was sent", _GONE)
        return _next(answer, None if "Location" in answer.headers else url), offset

    async def _finish(self, url: httpx.URL) -> None:
        # As S3 names what it got in parts.
        hashes = b"".join(self._bodies[part].md5 for part in self._parts)
        etag = f"{hashlib.md5(hashes, usedforsecurity=False).hexdigest()}-{len(self._parts)}"
        url = url.copy_merge_params({"digest": self._digest, "etag": etag})
        await self._persistently(
            lambda: self._client.ask("PUT", url, dict(_BYTES), patience_s=_SLOW_ANSWER_S)
        )


class _Body:
    """The bytes of a part from `offset` on; they can be asked for again, as after a 401."""

    def __init__(self, file: int, part: Part, offset: int) -> None:
        self._file, self._part, self._offset = file, part, offset
        self.num_sent = 0
        """Of the whole part."""
        self.md5 = b""
        """Of the whole part, once it has been sent."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.num_sent = 0
        md5 = hashlib.md5(usedforsecurity=False)
        for start in range(self._part.start, self._part.end, _PIECE_BYTES):
            wanted = min(_PIECE_BYTES, self._part.end - start)
            data = await asyncio.to_thread(self._read, start, wanted, md5)
            num_kept = max(self._offset - start, 0)
            if num_kept < wanted:
                yield data[num_kept:]
            self.num_sent += wanted
        self.md5 = md5.digest()

    async def read_all(self) -> None:
        """For the sum alone."""
        async for _ in self:
            pass

    def _read(self, start: int, wanted: int, md5: Hash) -> bytes:
        data = os.pread(self._file, wanted, start)
        if len(data) != wanted:
            raise StoreError("a blob was cut short while it was sent")
        md5.update(data)
        return data


def _next(answer: httpx.Response, url: httpx.URL | None = None) -> httpx.URL:
    """Where the registry wants what comes next; `url` by default, for answers that redirect a part alone."""
    if _UPLOADS in answer.headers:
        return location_of(answer, _UPLOADS)
    if url is not None:
        return url
    return location_of(answer)
