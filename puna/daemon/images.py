"""Makes PNGs of images that llama.cpp does not read, in a caged process for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from puna.worker.call_client import CallClient, WorkerDied
from puna.worker.calls import CallFailed
from puna.worker.images.messages import CROSSING, ImageError, ToPng
from puna.worker.process import ChildProcess

_MOST_AT_ONCE = 2


class ImageConverter:
    """Between requests there is no process."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)

    async def to_png(self, images: Sequence[bytes]) -> list[bytes]:
        """Of WebP images. Raises ImageError, whose text is for clients."""
        async with self._places:
            try:
                process, channel = await ChildProcess.spawn("puna.worker.images")
            except OSError as error:
                raise ImageError(f"the process that decodes it cannot be started: {error}") from error
            try:
                client = await CallClient.connect(channel, crossing=CROSSING)
                try:
                    return [await client.call(ToPng(image)) for image in images]
                finally:
                    await client.close()
            except (WorkerDied, CallFailed) as error:
                raise ImageError("decoding it takes too long, or has failed") from error
            finally:
                await process.end()
