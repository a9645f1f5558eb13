"""Log lines that stay lines: names, paths and error texts of strangers are in them."""

from __future__ import annotations

import logging
import re
import sys

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MOST_CHARS = 4096


class LineFormatter(logging.Formatter):
    """Escapes what terminals obey and what changes the order of reading. A message is one line of 4,096
    characters at most; the lines of a traceback are indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.exc_info is None:
            return _one_line(text)
        message, _, lines = text.partition("\n")
        return "\n    ".join([_one_line(message), *map(_escape, lines.split("\n"))])


def configure_logging(*, debug: bool) -> None:
    """To standard error."""
    handler = logging.StreamHandler(sys.stderr)
    prefix = "%(name)s: " if debug else ""
    handler.setFormatter(LineFormatter(f"%(asctime)s %(levelname)s {prefix}%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if debug else logging.INFO)
    for name in ("httpx", "httpcore"):  # they log addresses that are as good as passwords, and headers
        logging.getLogger(name).setLevel(logging.WARNING)


def _one_line(text: str) -> str:
    short = text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…"
    return _escape(short).replace("\n", "\\n")


def _escape(text: str) -> str:
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
