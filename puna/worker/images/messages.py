"""What a worker for images is asked."""

from __future__ import annotations

from puna.worker.calls import Call, Crossing


class ImageError(ValueError):
    """What is no image, or one that cannot be decoded or takes too much; the text is for clients."""


CROSSING: Crossing = (ImageError,)


class ToPng(Call[bytes], frozen=True):
    """Of a WebP; the first picture where it moves. Raises ImageError."""

    image: bytes
