"""The projector of a model that sees, as llama.cpp's server takes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import msgspec

from puna.backends.base import CannotSee, ModelLoadError
from puna.gguf import GgufError, GgufFile
from puna.gguf.projector_file import must_be_written, write_projector
from puna.worker.llamacpp.client.http import ServerClient


class _Properties(msgspec.Struct, frozen=True):
    """Of GET /props."""

    modalities: dict[str, bool] = {}
    media_marker: str = "<__media__>"
    """Older servers do not say it; that of newer ones is random."""


@contextmanager
def projector_file(descriptor: int, name: str) -> Iterator[int]:
    """descriptor: of the file that it is in, which may be the model's own. What has to be written anew is in
    memory, and empty at the end: the server has read it by then. Raises CannotSee, ModelLoadError.
    """
    try:
        written = _written(descriptor, name)
    except GgufError as error:
        raise CannotSee(f"{name} does not see: {error}") from error
    except OSError as error:
        raise ModelLoadError(f"{name}: its projector cannot be written into memory: {error}") from error
    if written is None:
        yield descriptor
        return
    with written:
        yield written.fileno()
        written.truncate(0)


def _written(descriptor: int, name: str) -> BinaryIO | None:
    """None: it is good as it is. Raises GgufError, OSError."""
    with GgufFile.from_descriptor(descriptor, name, as_published=True) as file:
        if file.metadata.get("general.architecture") == "clip" and not must_be_written(file.metadata):
            return None
        written = os.fdopen(os.memfd_create("projector", os.MFD_CLOEXEC), "w+b")
        try:
            write_projector(file, written)
        except BaseException:
            written.close()
            raise
        return written


async def media_marker(client: ServerClient, name: str) -> str:
    """What stands for an image in a prompt for the server. Raises CannotSee if the projector has no eyes."""
    properties: _Properties = await client.get("/props", _Properties)
    if not properties.modalities.get("vision"):
        raise CannotSee(f"{name} does not see: its projector is not for images")
    return properties.media_marker
