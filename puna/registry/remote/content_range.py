"""The header that says which bytes of how many a response carries."""

from __future__ import annotations

import re

from puna.registry.errors import RemoteError

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)


def parse_content_range(text: str) -> tuple[int, int | None]:
    """Position of the first byte, and how many there are in all, if that is told. Raises RemoteError."""
    match = _CONTENT_RANGE.fullmatch(text.strip())
    if match is None:
        raise RemoteError("the answer does not say which bytes it carries")
    return int(match[1]), None if match[3] == "*" else int(match[3])
