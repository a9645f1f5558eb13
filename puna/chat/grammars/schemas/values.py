"""Keywords about single values: whether llguidance can hold to them, and in which form."""

from __future__ import annotations

import math
import re
from typing import Any

from puna.chat.errors import PromptError
from puna.chat.grammars.schemas.keywords import FORMATS, Node
from puna.chat.grammars.sizes import check_regex

_MAX_COUNT = (1 << 31) - 1
_MAX_EXACT = 1 << 53
_MAX_BOUND = 1e30
_MAX_INTEGER = 10**18
_MAX_CONSTANTS = 10_000
_MAX_CONSTANT_CHARS = 10_000
_MAX_PATTERN_CHARS = 10_000
_CLASS_PIECES = re.compile(r"\\.|\[\^?|\]|&&|~~|.", re.DOTALL)


def count(value: Any, where: str) -> int:
    """Numbers like 3.0 are meant as integers. Raises PromptError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or value < 0:
        raise PromptError(f"the schema's {where} is not a count")
    return min(int(value), _MAX_COUNT)


def bound(value: Any, where: str, is_upper: bool, is_integer: bool) -> float | int | bool:
    """The nearest number within it that is a float, as which it is read; integers have 18 digits at most.
    Booleans are those of draft 4. Raises PromptError.
    """
    if isinstance(value, bool):
        return value
    if not isinstance(value, int | float) or abs(value) > _MAX_BOUND:
        raise PromptError(f"the schema's {where} is not a number, or is too large")
    wanted: float | int = value
    if is_integer:
        wanted = min(wanted, _MAX_INTEGER) if is_upper else max(wanted, -_MAX_INTEGER)
    nearest = float(wanted)
    if nearest != wanted and (nearest > wanted) == is_upper:
        return math.nextafter(nearest, -math.inf if is_upper else math.inf)
    return wanted


def bound_digits(integer: dict[str, Any]) -> None:
    """Gives a schema of integers the bounds that it lacks: a small model may never stop writing zeros."""
    lowest = integer.get("minimum", integer.get("exclusiveMinimum"))
    highest = integer.get("maximum", integer.get("exclusiveMaximum"))
    if highest is None and (lowest is None or lowest < _MAX_INTEGER):
        integer["maximum"] = _MAX_INTEGER
    if lowest is None and (highest is None or highest > -_MAX_INTEGER):
        integer["minimum"] = -_MAX_INTEGER


def is_exact(value: Any) -> bool:
    """Whether no number in it loses digits as a float."""
    match value:
        case bool():
            return True
        case int():
            return abs(value) <= _MAX_EXACT
        case list():
            return all(map(is_exact, value))
        case dict():
            return all(map(is_exact, value.values()))
    return True


def check_size(value: Any, where: str) -> None:
    """Of constants, which are followed byte by byte. Raises PromptError."""
    waiting, num_values = [value], 0
    while waiting:
        part = waiting.pop()
        num_values += 1
        if num_values > _MAX_CONSTANTS or (isinstance(part, str) and len(part) > _MAX_CONSTANT_CHARS):
            most = f"{_MAX_CONSTANTS} values, or one over {_MAX_CONSTANT_CHARS} characters"
            raise PromptError(f"the schema's {where} has over {most}")
        if isinstance(part, dict):
            waiting += [*part, *part.values()]
        elif isinstance(part, list):
            waiting += part


def divisor(value: Any) -> int:
    """Its digits, without the point: 25 of 0.25. 0 for what is none that can be used."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MAX_BOUND:
        return 0
    written = f"{value:.10f}"
    return int(written.rstrip("0").replace(".", "")) if float(written) == value else 0


def knows_format(node: Node) -> bool:
    """Formats are of texts alone."""
    types = node.get("type", "string")
    return node["format"] in FORMATS and "string" in ([types] if isinstance(types, str) else types)


def rust_pattern(pattern: Any, where: str) -> str:
    """A regular expression of JavaScript in the syntax of Rust's regex crate, where classes may be nested.
    Raises PromptError.
    """
    if not isinstance(pattern, str) or len(pattern) > _MAX_PATTERN_CHARS:
        raise PromptError(f"the schema's {where} is not a text of {_MAX_PATTERN_CHARS} characters at most")
    pieces, within = [], False
    for match in _CLASS_PIECES.finditer(pattern):
        piece = match.group()
        if within and piece in ("[", "[^", "&&", "~~"):
            pieces.append("".join("\\" + char for char in piece))
        else:
            within = piece.startswith("[") or (within and piece != "]")
            pieces.append(piece)
    check_regex(pattern, f"the schema's {where}")
    return "".join(pieces)
