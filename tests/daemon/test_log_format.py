"""Strangers' texts in the log change neither the terminal nor what lines there are."""

from __future__ import annotations

import logging

import pytest

from puna.daemon.log_format import LineFormatter

pytestmark = pytest.mark.unit


def line(message: str, *args: object, error: BaseException | None = None) -> str:
    exc_info = (type(error), error, None) if error else None
    record = logging.LogRecord("puna", logging.WARNING, __file__, 1, message, args, exc_info)
    return LineFormatter("%(levelname)s %(message)s").format(record)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;ZXZpbA==\x07", r"\x1b]52;c;ZXZpbA==\x07"),
        ("a\nERROR forged", r"a\nERROR forged"),
        ("a\r\tb", r"a\r\tb"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("a\udc80\u2028b", r"a\udc80\u2028b"),
        ("grün 🦙", "grün 🦙"),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert line("model %s", text) == f"WARNING model {shown}"


def test_lines_of_an_error_are_indented_and_long_messages_cut():
    text = line("failed", error=ValueError("a\nERROR forged \x1b[2J"))
    assert text.splitlines() == ["WARNING failed", "    ValueError: a", r"    ERROR forged \x1b[2J"]
    assert len(line("x" * 100_000)) < 5000
