"""What a conversion worker is asked. While it works it tells ConvertProgress."""

from __future__ import annotations

from puna.convert.errors import ConversionError
from puna.convert.job import ConvertJob
from puna.worker.calls import MAX_DESCRIPTORS, Call, Crossing

CROSSING: Crossing = (ConversionError,)

MAX_FILES = 1024
"""The largest models come in some two hundred parts."""
FILES_PER_MESSAGE = MAX_DESCRIPTORS


class TakeFiles(Call[None], frozen=True):
    """With as many descriptors as names, to read. Can be sent several times, before Convert."""

    names: list[str]


class Convert(Call[None], frozen=True):
    """With the output's descriptor: a regular file, empty. The last message. Raises
    ConversionError.
    """

    job: ConvertJob


ToConverter = TakeFiles | Convert
