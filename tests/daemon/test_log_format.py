"""Strangers' texts in the log change neither the terminal nor what lines there are."""

from __future__ import annotations

import contextvars
import json
import logging
import subprocess
import sys

import pytest

from puna.daemon.log_format import JsonFormatter, LineFormatter
from puna.daemon.request_context import REQUEST_ID

pytestmark = pytest.mark.unit


LINES = LineFormatter("%(levelname)s %(request)s%(message)s")


def line(
    message: str, *args: object, error: BaseException | None = None, form: logging.Formatter = LINES
) -> str:
    exc_info = (type(error), error, None) if error else None
    return form.format(logging.LogRecord("puna", logging.WARNING, __file__, 1, message, args, exc_info))


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


def test_json_lines_have_the_request_the_error_and_nothing_that_terminals_obey():
    def told() -> tuple[str, str]:
        REQUEST_ID.set("abc")
        return line("failed"), line("a\n\x9b\udc80\u202e", error=ValueError("why"), form=JsonFormatter())

    plain, text = contextvars.copy_context().run(told)
    assert plain == "WARNING [abc] failed"
    assert text.isprintable()
    entry = json.loads(text)
    assert entry["message"] == "a\n\x9b\\udc80\u202e"
    assert (entry["level"], entry["logger"], entry["request_id"]) == ("warning", "puna", "abc")
    assert entry["error"] == "ValueError: why"


SAY = """
import logging
from puna.daemon.log_format import configure_logging
configure_logging(debug=True)
for name in ("httpx", "httpcore.http11", "puna"):
    logging.getLogger(name).info("of %s", name)
"""


def test_clients_of_registries_log_neither_addresses_nor_tokens():
    done = subprocess.run([sys.executable, "-c", SAY], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in done.stderr.splitlines()] == ["puna"]
