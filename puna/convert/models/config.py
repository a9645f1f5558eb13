"""config.json, read value by value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from puna.convert.errors import ConversionError

NAME = "config.json"
_MAX_NUMBER = 3e38
T = TypeVar("T", int, float)

_NESTED = "text_config"
"""Of models that also see: the language model's part, before which the rest yields."""


class Config:
    """Methods take several names for one thing, as configurations have them, and raise ConversionError for a
    value that is missing, of another type or out of range.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        nested = values.get(_NESTED)
        self._values = {**values, **nested} if isinstance(nested, dict) else dict(values)

    def with_defaults(self, defaults: Mapping[str, Any]) -> Config:
        """For what is not said."""
        said = {name: value for name, value in self._values.items() if value is not None}
        return Config({**defaults, **said})

    @property
    def model_class(self) -> str:
        """Such as "LlamaForCausalLM"."""
        classes = self._values.get("architectures")
        if not isinstance(classes, list) or not classes or not isinstance(classes[0], str):
            raise ConversionError(f"{NAME}: architectures is missing or no list of names")
        return classes[0]

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def token_id(self, name: str) -> int | None:
        """None if it is not said, or names several."""
        value = self._values.get(name)
        return value if type(value) is int and value >= 0 else None

    def integer(self, *names: str, default: int | None = None, maximum: int = 1 << 30) -> int:
        """In [0, maximum]."""
        name, value = self._find(names, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
            raise ConversionError(f"{NAME}: {name} is {_shown(value)}, not a whole number up to {maximum}")
        return value

    def shared_integer(self, *names: str, default: int | None = None) -> int:
        """A whole number, or a list that has it for every layer."""
        name, value = self._find(names, default)
        values = value if isinstance(value, list) and value else [value]
        if any(other != values[0] for other in values):
            raise ConversionError(f"{NAME}: {name} is not the same for all layers")
        return Config({name: values[0]}).integer(name)

    def number(self, *names: str, default: float | None = None) -> float:
        """What fits into 32 bits."""
        name, value = self._find(names, default)
        if not _is_number(value):
            raise ConversionError(f"{NAME}: {name} is {_shown(value)}, not a number")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        name, value = self._find((name,), default)
        if not isinstance(value, bool):
            raise ConversionError(f"{NAME}: {name} is {_shown(value)}, not true or false")
        return value

    def text(self, name: str, default: str = "") -> str:
        name, value = self._find((name,), default)
        if not isinstance(value, str):
            raise ConversionError(f"{NAME}: {name} is {_shown(value)}, not a text")
        return value

    def texts(self, name: str, count: int) -> list[str] | None:
        """So many; None if there is no such list."""
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) < count or not all(isinstance(v, str) for v in value):
            raise ConversionError(f"{NAME}: {name} is {_shown(value)}, not {count} texts")
        return value[:count]

    def numbers(self, name: str) -> NDArray[np.float32]:
        """A list of them, of any length but 0."""
        value = self._values.get(name)
        if not isinstance(value, list) or not value or not all(map(_is_number, value)):
            raise ConversionError(f"{NAME}: {name} is no list of numbers")
        return np.array(value, dtype=np.float32)

    def labels(self, name: str) -> list[str] | None:
        """What an object of texts has, in order of their keys; None if there is no such object."""
        if not self.has(name):
            return None
        value = self._values[name]
        if not isinstance(value, dict) or not all(isinstance(label, str) for label in value.values()):
            raise ConversionError(f"{NAME}: {name} is no object of texts")
        return [value[key] for key in sorted(value)]

    def section(self, *names: str) -> Config:
        """An object; empty if there is none."""
        name, value = self._find(names, {})
        if not isinstance(value, dict):
            raise ConversionError(f"{NAME}: {name} is {_shown(value)}, not an object")
        return Config(value)

    def _find(self, names: tuple[str, ...], default: Any) -> tuple[str, Any]:
        for name in names:
            if self.has(name):
                return name, self._values[name]
        if default is None:
            raise ConversionError(f"{NAME}: {names[0]} is missing")
        return names[0], default


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_NUMBER


def _shown(value: Any) -> str:
    return repr(value)[:40] if isinstance(value, str | int | float | bool) else type(value).__name__
