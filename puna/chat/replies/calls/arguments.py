"""Arguments of calls, as models write them."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import msgspec

from puna.chat.replies.reader import NotACall

_HALF_OF_A_PAIR = re.compile(r"(?i)(\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\\\)|\\ud[89a-f][0-9a-f]{2}")


def parse_json(text: str) -> Any:
    """Lenient: line ends within strings are taken as they are, numbers too large for a float become the
    largest one, halves of surrogate pairs U+FFFD. Raises NotACall.
    """
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise NotACall from error
    except msgspec.MsgspecError:
        whole = _HALF_OF_A_PAIR.sub(lambda match: match[1] or r"\ufffd", text)
    try:
        return json.loads(whole, strict=False, parse_float=_finite, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise NotACall from error


def as_object(value: Any) -> dict[str, Any]:
    """Arguments that are an object, or one written as a string; nothing is none. Raises NotACall."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        value = parse_json(value)
    if not isinstance(value, dict):
        raise NotACall
    return value


def _finite(text: str) -> float:
    return max(-sys.float_info.max, min(sys.float_info.max, float(text)))


def _refused(constant: str) -> float:
    raise ValueError(constant)
