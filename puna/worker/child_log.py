"""What a child writes to its standard error: passed on to ours, but not as it is.

A child that held our terminal could read what is typed there, and put control sequences on the screen.
"""

from __future__ import annotations

import asyncio
import codecs
import sys
from collections.abc import Callable
from contextlib import suppress

_CHUNK_BYTES = 1 << 16
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


async def relay_log(stream: asyncio.StreamReader, write: Callable[[str], object] | None = None) -> None:
    """Until the child closes it, which is at its end. write: takes text; default: our standard error."""
    write = sys.stderr.write if write is None else write
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    chunk = b"begin"
    while chunk:
        chunk = await stream.read(_CHUNK_BYTES)
        with suppress(OSError):  # ours is closed or full: the child must not wait for it
            write(decoder.decode(chunk, final=not chunk).translate(_CONTROLS))
