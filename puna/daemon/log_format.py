"""Log lines that stay lines: names, paths and error texts of strangers are in them."""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from puna.daemon.request_context import REQUEST_ID

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MOST_CHARS = 4096


class LineFormatter(logging.Formatter):
    """Escapes what terminals obey and what changes the order of reading. A message is one line of 4,096
    characters at most; the lines of a traceback are indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        request_id = REQUEST_ID.get()
        record.request = f"[{request_id}] " if request_id else ""
        text = super().format(record)
        if record.exc_info is None:
            return _one_line(text)
        message, _, lines = text.partition("\n")
        return "\n    ".join([_one_line(message), *map(_escape, lines.split("\n"))])


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339), level, logger, message, and what else there is to say:
    request_id, error (a traceback), method, path, status, duration_ms and client of an access.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        if request_id := REQUEST_ID.get():
            fields["request_id"] = request_id
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        fields |= getattr(record, "access", {})
        # JSON escapes controls, but not all that terminals obey; halves of characters cannot be encoded.
        text = msgspec.json.encode(_without_halves(fields)).decode()
        return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def configure_logging(*, debug: bool, as_json: bool = False) -> None:
    """To standard error."""
    handler = logging.StreamHandler(sys.stderr)
    name = "%(name)s: " if debug else ""
    lines = LineFormatter(f"%(asctime)s %(levelname)s {name}%(request)s%(message)s")
    handler.setFormatter(JsonFormatter() if as_json else lines)
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if debug else logging.INFO)
    for library in ("httpx", "httpcore"):  # they log addresses that are as good as passwords, and headers
        logging.getLogger(library).setLevel(logging.WARNING)


def _without_halves(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
        for name, value in fields.items()
    }


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…"


def _one_line(text: str) -> str:
    return _escape(_cut(text)).replace("\n", "\\n")


def _escape(text: str) -> str:
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
