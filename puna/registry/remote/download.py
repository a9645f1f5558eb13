"""Downloading a blob: many ranges at once, hashed on the way, gone on with where it was left.

Files are written and hashed in threads of their own, so that a slow disk holds up nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import NamedTuple, ParamSpec

import httpx

from puna.registry.errors import PullError, RemoteError
from puna.registry.first_error import first_of
from puna.registry.remote.client import RegistryClient
from puna.registry.store.part_files import Part
from puna.registry.store.partial_blob import PartialBlob

P = ParamSpec("P")

NUM_STREAMS = 16
"""Parts of a blob that are fetched at once, as Ollama does."""
_NUM_THREADS = 4
_PIECE_BYTES = 512 << 10
"""Written at once: what a kill loses of each stream is less."""
_HASH_BYTES = 16 << 20
_SYNC_BYTES = 256 << 20
_NOT_THERE = 404
_MOVED = (400, 401, 403, 404, 410)
"""Where a blob was redirected to is no longer: such addresses are signed, and expire."""


class Patience(NamedTuple):
    """How long to wait before asking again, in seconds."""

    after_nothing: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    """After so many attempts that brought nothing; after one more, the download fails."""
    after_some: float = 0.1


class BlobDownload:
    """Of one blob into `blob`, which stays the caller's, from a repository."""

    def __init__(
        self,
        client: RegistryClient,
        repository: str,
        blob: PartialBlob,
        num_streams: int,
        patience: Patience,
    ) -> None:
        self._client = client
        self._repository = repository
        self._blob = blob
        self._num_streams = num_streams
        self._patience = patience
        self._url: httpx.URL | None = None
        self._locating = asyncio.Lock()
        self._has_ranges = True
        self._progressed = asyncio.Event()
        self._hashed = asyncio.Event()
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(_NUM_THREADS, "puna-download")

    async def run(self) -> None:
        """Until all of it is there, verified, and a blob. Cancelled, what is there stays.

        Raises DigestMismatch, PullError, StoreError, AccessDenied, SigningKeyError.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._hash())
                group.create_task(self._fetch())
                group.create_task(self._sync())
            await self._in_thread(self._blob.commit)
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
        finally:
            self._stop.set()
            await asyncio.shield(asyncio.to_thread(self._threads.shutdown))  # nothing writes afterwards

    async def _hash(self) -> None:
        while self._blob.num_hashed < self._blob.num_bytes:
            self._progressed.clear()
            if self._blob.prefix == self._blob.num_hashed:
                await self._progressed.wait()
            await self._in_thread(self._blob.hash_on, _HASH_BYTES, self._stop)
            self._hashed.set()
            self._hashed.clear()

    async def _sync(self) -> None:
        for position in range(_SYNC_BYTES, self._blob.num_bytes, _SYNC_BYTES):
            while self._blob.num_hashed < position:
                await self._hashed.wait()
            await self._in_thread(self._blob.sync)

    async def _fetch(self) -> None:
        parts = iter([part for part in self._blob.parts if part.num_missing])
        async with asyncio.TaskGroup() as group:
            for _ in range(self._num_streams):
                group.create_task(self._fetch_parts(parts))
        if not self._has_ranges:
            await self._persistently(None)

    async def _fetch_parts(self, parts: Iterator[Part]) -> None:
        for part in parts:
            await self._persistently(part)

    async def _persistently(self, part: Part | None) -> None:
        """Fetches a part, or the whole in one stream, until it is there."""
        num_fruitless = 0
        while self._num_missing(part) and (part is None or self._has_ranges):
            before = self._num_missing(part)
            try:
                await self._attempt(part)
                continue
            except RemoteError as error:
                if self._url is None and error.status == _NOT_THERE:
                    raise PullError(f"blob {self._blob.digest}: {error}") from error
                if error.status in _MOVED:
                    self._url = None
                reason = error
            num_fruitless = 0 if self._num_missing(part) < before else num_fruitless + 1
            if num_fruitless > len(self._patience.after_nothing):
                raise PullError(f"max retries exceeded: {reason}") from reason
            await asyncio.sleep(
                self._patience.after_nothing[num_fruitless - 1]
                if num_fruitless
                else self._patience.after_some
            )

    def _num_missing(self, part: Part | None) -> int:
        return part.num_missing if part else self._blob.num_bytes - self._blob.completed

    async def _attempt(self, part: Part | None) -> None:
        """Raises RemoteError if the stream ended early."""
        url = await self._locate()
        start, end = (part.position, part.end) if part else (0, self._blob.num_bytes)
        async with (
            self._client.read_range(url, start, end, self._blob.num_bytes) as body,
            aclosing(body.pieces),
        ):
            if body.start != start:
                self._has_ranges = False  # so many streams that all begin at 0 are of no use
                return
            await self._receive(body.pieces, start, end)
            if body.announced == str(end - start):
                await anext(body.pieces, None)  # the end: so the connection can serve again

    async def _locate(self) -> httpx.URL:
        async with self._locating:
            if self._url is None:
                self._url = await self._client.locate(self._repository, self._blob.digest)
            return self._url

    async def _receive(self, pieces: AsyncGenerator[bytes, None], position: int, end: int) -> None:
        held: list[bytes] = []
        num_held = 0
        try:
            async for piece in pieces:
                held.append(piece)
                num_held += len(piece)
                if num_held >= min(_PIECE_BYTES, end - position):
                    data = b"".join(held)[: end - position]
                    held, num_held = [], 0
                    await self._write(position, data)
                    position += len(data)
                if position == end:
                    return
            raise RemoteError(f"the stream ended {end - position - num_held} bytes early")
        finally:
            if held:  # broken off
                await asyncio.shield(self._write(position, b"".join(held)))

    async def _write(self, position: int, data: bytes) -> None:
        await self._in_thread(self._blob.write, position, data)
        self._progressed.set()

    async def _in_thread(self, function: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        call = partial(function, *arguments, **named)
        await asyncio.get_running_loop().run_in_executor(self._threads, call)
