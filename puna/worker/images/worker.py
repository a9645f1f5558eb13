"""Decodes images of strangers: limited and caged before it sees the first."""

from __future__ import annotations

import io
import logging

from PIL import Image, WebPImagePlugin

from puna.worker import cage
from puna.worker.calls import CallServer, Channel
from puna.worker.images.messages import CROSSING, ImageError, ToPng
from puna.worker.text.limits import Limits, limit_process, processor_time

log = logging.getLogger(__name__)

LIMITS = Limits(memory_bytes=3 << 29, file_bytes=0)
"""An image of 64 megapixels takes 1 GiB, and what it comes and goes as twice 48 MiB each."""
CPU_S = 30.0
"""For one image: 64 megapixels take a sixth of it."""
_MOST_PNG_BYTES = 48 << 20
"""As much as images of a request can have."""


def run(channel: Channel) -> None:
    """Serves one daemon until it closes the channel."""
    Image.preinit()  # imports plugins: once caged, it can open no file of code
    assert WebPImagePlugin.SUPPORTED
    Image.MAX_IMAGE_PIXELS = None  # who asks has looked at the header, and memory is limited
    limit_process(LIMITS)
    level = cage.enter(cage.CageRules())
    if level.warning:
        log.warning("the process is %s", level.warning)
    server = CallServer(channel, ToPng, CROSSING)
    while (asked := server.read()) is not None:
        try:
            with processor_time(CPU_S):
                png = to_png(asked.message.image)
        except ImageError as error:
            server.fail(asked.call, error)
        except MemoryError:
            server.fail(asked.call, ImageError("it takes too much memory"))
        else:
            server.answer(asked.call, png)


def to_png(image: bytes) -> bytes:
    """Raises ImageError."""
    output = io.BytesIO()
    try:
        with Image.open(io.BytesIO(image), formats=["WEBP"]) as opened:
            opened.convert("RGB").save(output, "PNG", compress_level=1)  # llama.cpp leaves out alpha, too
    except MemoryError:
        raise
    except Exception as error:  # of whatever kind: there are no others than those of the image
        raise ImageError("it cannot be decoded") from error
    if output.tell() > _MOST_PNG_BYTES:
        raise ImageError(f"as a PNG it has more than {_MOST_PNG_BYTES >> 20} MiB")
    return output.getvalue()
