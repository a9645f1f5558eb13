"""HEAD, POST /api/blobs/{digest}: uploads that a create then refers to."""

from __future__ import annotations

import asyncio
import os

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from puna.api.context import context_of
from puna.api.errors import ApiError
from puna.config.sizes import binary_size
from puna.registry import parse_digest
from puna.registry.store.blob_writer import BlobWriter

# Hashing and writing happen in a thread, in pieces large enough that handing them over costs nothing.
_PIECE_BYTES = 1 << 20
_SPARE_BYTES = 256 << 20


async def probe(request: Request) -> Response:
    """Whether there is a blob."""
    digest = parse_digest(request.path_params["digest"])
    if not context_of(request).runtime.store.has_blob(digest):
        raise ApiError(404, f'blob "{digest}" not found')
    return Response()


async def upload(request: Request) -> Response:
    """Stores a blob, the raw bytes as body: 201, or 200 if it was there. Broken off: nothing is kept."""
    store = context_of(request).runtime.store
    digest = parse_digest(request.path_params["digest"])
    if store.has_blob(digest):
        async for _ in request.stream():  # a client that still sends would not see the answer
            pass
        return Response()
    writer = store.blob_writer(digest)
    try:
        _check_room(writer, int(request.headers.get("content-length", "0")))
        await _receive(request, writer)
        await asyncio.to_thread(writer.commit)
    except ClientDisconnect as error:
        raise ApiError(499, "request canceled") from error
    finally:
        await asyncio.to_thread(writer.close)
    return Response(status_code=201)


def _check_room(writer: BlobWriter, num_bytes: int) -> None:
    """ApiError (507) if so many more bytes would fill the disk, which others need as well."""
    disk = os.statvfs(writer.path)
    if num_bytes > disk.f_bavail * disk.f_frsize - _SPARE_BYTES:
        raise ApiError(507, f"no room for the blob: {binary_size(_SPARE_BYTES)} of the disk stay free")


async def _receive(request: Request, writer: BlobWriter) -> None:
    piece = bytearray()
    async for data in request.stream():
        piece += data
        if len(piece) >= _PIECE_BYTES:
            _check_room(writer, len(piece))
            await asyncio.to_thread(writer.write, piece)
            piece = bytearray()
    await asyncio.to_thread(writer.write, piece)
