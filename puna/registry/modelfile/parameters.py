"""Parameters of models: their names, their types, and how they are written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from puna.registry.modelfile.errors import ModelfileError

INTEGERS = frozenset(
    [
        *("num_ctx", "num_keep", "num_predict", "seed", "top_k", "repeat_last_n"),
        *("num_batch", "num_gpu", "main_gpu", "num_thread", "draft_num_predict"),
    ]
)
FLOATS = frozenset(
    [
        *("top_p", "min_p", "typical_p", "temperature"),
        *("repeat_penalty", "presence_penalty", "frequency_penalty"),
    ]
)
BOOLEANS = frozenset(["use_mmap"])
TEXTS = frozenset(["draft_model"])
DEPRECATED = frozenset(
    [
        *("penalize_newline", "low_vram", "f16_kv", "logits_all", "vocab_only", "use_mlock"),
        *("mirostat", "mirostat_tau", "mirostat_eta"),
    ]
)
"""Options of earlier versions, which mean nothing now."""

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MOST_PLAIN = 1e21
_LEAST_PLAIN = 1e-6


def parse_parameter(name: str, values: Sequence[str]) -> Any:
    """The value of an option as the API takes it, `stop` as a list. Raises ModelfileError."""
    if name == "stop":
        return list(values)
    text = " ".join(values)
    if name in TEXTS:
        return text
    if name in INTEGERS:
        if not _INTEGER.fullmatch(text):
            raise ModelfileError(f"invalid int value [{text}]")
        return int(text)
    if name in FLOATS:
        if not _FLOAT.fullmatch(text) or not math.isfinite(value := float(text)):
            raise ModelfileError(f"invalid float value [{text}]")
        return value
    if name not in BOOLEANS:
        raise ModelfileError(f"unknown parameter '{name}'")
    if text not in (*_TRUE, *_FALSE):
        raise ModelfileError(f"invalid bool value [{text}]")
    return text in _TRUE


def each_value(parameters: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values, those of a list one by one."""
    for name, value in parameters.items():
        for item in value if isinstance(value, list) else [value]:
            yield name, item


def written_value(value: Any) -> str:
    """As a Modelfile has it; numbers with all their digits."""
    if isinstance(value, bool):
        return str(value).lower()
    return written_float(value) if isinstance(value, float) else str(value)


def written_float(value: float) -> str:
    """The shortest text for it, as Go's JSON has it: 1, 0.7, 1e-7."""
    if value.is_integer() and abs(value) < _MOST_PLAIN:
        return str(int(value))
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    if abs(value) >= _LEAST_PLAIN and int(exponent) < 0:
        digits = len(mantissa.lstrip("-").replace(".", "")) - 1 - int(exponent)
        return f"{value:.{digits}f}"
    return f"{mantissa}e{int(exponent):+}".replace("e-0", "e-")


def parameters_text(parameters: Mapping[str, Any]) -> str:
    """One line per value, strings in quotes."""
    lines = (
        f'{name:<30} "{value}"' if isinstance(value, str) else f"{name:<30} {written_value(value)}"
        for name, value in each_value(parameters)
    )
    return "\n".join(lines)
