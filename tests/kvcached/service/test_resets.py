"""Resets are found wherever the bytes of a connection are cut."""

from __future__ import annotations

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import DataFrame, Frame, RstStreamFrame, SettingsFrame, WindowUpdateFrame

from puna.kvcached.service.resets import Reset, ResetScanner

pytestmark = pytest.mark.unit

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LAST_STREAM = (1 << 31) - 1
FRAMES: list[Frame] = [
    SettingsFrame(0),
    RstStreamFrame(1, ErrorCodes.CANCEL),
    DataFrame(3, RstStreamFrame(5, ErrorCodes.CANCEL).serialize()),
    DataFrame(3, bytes(300)),
    DataFrame(3, b""),
    RstStreamFrame(LAST_STREAM, ErrorCodes.NO_ERROR),
    RstStreamFrame(7, 0xFFFFFFFF),
    WindowUpdateFrame(0, 1),
]


@pytest.mark.parametrize("step", [*range(1, 40), 1000])
def test_resets_are_found(step):
    data = PREFACE + b"".join(frame.serialize() for frame in FRAMES)
    scanner, found = ResetScanner(), []
    for start in range(0, len(data), step):
        found += scanner.scan(data[start : start + step])
    assert found == [
        Reset(1, ErrorCodes.CANCEL),
        Reset(LAST_STREAM, ErrorCodes.NO_ERROR),
        Reset(7, 0xFFFFFFFF),
    ]
