"""Integers of JSON, which may be of any length."""

from __future__ import annotations

import sys
from typing import Any

_LEAST_INT = -(2**63)
_MOST_INT = 2**64 - 1
_MOST_FLOAT = int(sys.float_info.max)


def within_64_bits(value: Any) -> Any:
    """`value` with longer integers as floating-point numbers, which is all that most JSON parsers have, and
    messages to other processes can hold.
    """
    if isinstance(value, list):
        return [within_64_bits(item) for item in value]
    if isinstance(value, dict):
        return {key: within_64_bits(item) for key, item in value.items()}
    if isinstance(value, int) and not _LEAST_INT <= value <= _MOST_INT:
        return float(min(max(value, -_MOST_FLOAT), _MOST_FLOAT))
    return value
