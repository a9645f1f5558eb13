"""How values are written: the formats of Go's package fmt that templates use, and JSON.

https://pkg.go.dev/fmt
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

from puna.gotemplate.values import JsonObject, Stringer, Struct, type_name

NO_VALUE = "<no value>"
_MAX_WIDTH = 1_000_000
_VERB = re.compile(
    r"%(?P<flags>[-+# 0]*)(?P<width>\d{1,6}|\*)?(?:\.(?P<precision>\*|\d{0,6}))?(?P<verb>.)?", re.DOTALL
)
_HTML = str.maketrans(
    {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"}
)


def shown(value: Any) -> str:
    """What an action writes."""
    return NO_VALUE if value is None else formatted(value)


def formatted(value: Any) -> str:
    """As by %v."""
    if isinstance(value, Stringer):
        return value.go_string()
    match value:
        case str():
            return value
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return _general(value)
        case Struct():
            return "{" + " ".join(map(formatted, value.fields.values())) + "}"
        case dict():
            return "map[" + " ".join(f"{key}:{formatted(value[key])}" for key in sorted(value)) + "]"
        case list() | tuple():
            return "[" + " ".join(map(formatted, value)) + "]"
    return str(value)


def sprint(values: Sequence[Any]) -> str:
    """With spaces between those of which neither is a string."""
    parts = [formatted(value) for value in values[:1]]
    for before, value in pairwise(values):
        spaced = not isinstance(before, str) and not isinstance(value, str)
        parts.append(" " * spaced + formatted(value))
    return "".join(parts)


def sprintf(pattern: str, values: Sequence[Any]) -> str:
    left = list(values)

    def number(text: str | None) -> int | None:
        """Of a width or a precision; a star takes it from the values."""
        if text != "*":
            return int(text or 0) if text is not None else None
        value = left.pop(0) if left else None
        return value if isinstance(value, int) and abs(value) <= _MAX_WIDTH else None

    def written(match: re.Match[str]) -> str:
        verb = match["verb"]
        if verb == "%":
            return "%"
        if verb is None:
            return "%!(NOVERB)"
        width, precision = number(match["width"]), number(match["precision"])
        if not left:
            return f"%!{verb}(MISSING)"
        return _padded(_written(verb, left.pop(0), match["flags"], precision), match["flags"], width or 0)

    text = _VERB.sub(written, pattern)
    if left:
        text += "%!(EXTRA " + ", ".join(f"{type_name(value)}={formatted(value)}" for value in left) + ")"
    return text


def _written(verb: str, value: Any, flags: str, precision: int | None) -> str:
    text = _by_verb(verb, value, flags, precision)
    if text is None:
        described = "<nil>" if value is None else f"{type_name(value)}={formatted(value)}"
        return f"%!{verb}({described})"
    return text


def _padded(text: str, flags: str, width: int) -> str:
    if "-" in flags or width < 0:
        return text.ljust(abs(width))
    if "0" in flags:
        sign = text[:1] if text[:1] in ("-", "+") else ""
        return sign + text[len(sign) :].rjust(width - len(sign), "0")
    return text.rjust(width)


def _by_verb(verb: str, value: Any, flags: str, precision: int | None) -> str | None:
    """None: the verb is not for such values."""
    is_text = isinstance(value, str | Stringer)
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if verb == "v":
        if isinstance(value, int | float) and not isinstance(value, bool) and "+" in flags and value >= 0:
            return "+" + formatted(value)
        return quoted(value) if "#" in flags and isinstance(value, str) else formatted(value)
    if verb == "T":
        return type_name(value)
    if verb == "t" and isinstance(value, bool):
        return formatted(value)
    if verb in "sqxX" and is_text:
        text = formatted(value)[:precision]
        return {"s": text, "q": quoted(text), "x": text.encode().hex()}.get(verb, text.encode().hex().upper())
    if verb in "sqd" and isinstance(value, list | tuple):
        return "[" + " ".join(_written(verb, item, flags, precision) for item in value) + "]"
    if verb in "dbox" + "X" and is_int:
        return format(value, ("+" if "+" in flags else "") + verb)
    if verb == "c" and is_int:
        return chr(value)
    if verb in "eEfFgG" and isinstance(value, float):
        if verb in "gG" and precision is None:
            return _general(value)
        return format(value, f"{'+' if '+' in flags else ''}.{6 if precision is None else precision}{verb}")
    return None


def quoted(text: str) -> str:
    """As by %q."""
    special = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
    special |= {"\\": r"\\", '"': r"\""}
    return '"' + "".join(special.get(char) or _printable(char) for char in text) + '"'


def _printable(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _general(value: float) -> str:
    """The shortest that is the same number."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    largest = len(digits) + int(exponent) - 1
    if -5 < largest < 6 or not value:
        return repr(value).removesuffix(".0")
    text = "".join(map(str, digits))
    mantissa = text[0] + ("." + text[1:] if text[1:] else "")
    return f"{'-' * sign}{mantissa}e{largest:+03d}"


def to_json(value: Any) -> str:
    """Compact; keys of maps are sorted; what could be read as HTML is escaped."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")).translate(_HTML)


def _plain(value: Any) -> Any:
    """What the standard library's encoder writes in the same way."""
    if isinstance(value, Struct):
        value = value.json
    if isinstance(value, JsonObject):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    return value
