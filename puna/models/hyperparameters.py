"""Typed reading of an architecture's hyperparameters from GGUF metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_CONTEXT = 1 << 30
"""Tokens."""


class HyperparameterError(ValueError):
    """A metadata value that is missing, of the wrong type or out of range; the text names its key."""


class Hyperparameters:
    """Metadata keys below `<general.architecture>.`."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        architecture = metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise HyperparameterError("metadata general.architecture is missing or not a string")
        self.architecture = architecture
        self._metadata = metadata

    def key(self, name: str) -> str:
        return f"{self.architecture}.{name}"

    def has(self, name: str) -> bool:
        return self.key(name) in self._metadata

    def integer(
        self, name: str, default: int | None = None, *, minimum: int = 1, maximum: int = 1 << 24
    ) -> int:
        """A whole number in [minimum, maximum]."""
        value = self._get(name, default)
        if isinstance(value, np.ndarray) and value.size and (value == value.flat[0]).all():
            value = value.flat[0].item()  # one value per layer, all the same
        if isinstance(value, bool) or not isinstance(value, int):
            raise HyperparameterError(f"metadata {self.key(name)} is {described(value)}, not an integer")
        if not minimum <= value <= maximum:
            raise HyperparameterError(
                f"metadata {self.key(name)} is {value}, not between {minimum} and {maximum}"
            )
        return value

    def integers(self, name: str, count: int, default: int | None = None, *, maximum: int) -> list[int]:
        """An array of so many whole numbers in [0, maximum], or one that stands for all of them."""
        values = self._get(name, default)
        if not isinstance(values, np.ndarray):
            return [self.integer(name, default, minimum=0, maximum=maximum)] * count
        if values.dtype.kind not in "iu" or values.shape != (count,):
            raise HyperparameterError(
                f"metadata {self.key(name)} is {described(values)}, not {count} whole numbers"
            )
        if values.size and not 0 <= values.min() <= values.max() <= maximum:
            raise HyperparameterError(f"metadata {self.key(name)} has values beyond 0 and {maximum}")
        return [int(value) for value in values]

    def numbers(self, name: str, count: int) -> list[float] | None:
        """An array of so many numbers, which may be infinite; None if there is no array of that name."""
        values = self._metadata.get(self.key(name))
        if not isinstance(values, np.ndarray):
            return None
        if values.dtype.kind != "f" or values.shape != (count,) or np.isnan(values).any():
            raise HyperparameterError(
                f"metadata {self.key(name)} is {described(values)}, not {count} numbers"
            )
        return [float(value) for value in values]

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise HyperparameterError(f"metadata {self.key(name)} is {described(value)}, not a finite number")
        return float(value)

    def common_numbers(self, name: str, count: int) -> list[float]:
        """So many finite numbers, or one for all, under a key that is not below the architecture's."""
        value = self._metadata.get(name)
        is_one = isinstance(value, int | float) and not isinstance(value, bool)
        values = np.full(count, value) if is_one else np.asarray(value)
        if values.dtype.kind not in "iuf" or values.shape != (count,) or not np.isfinite(values).all():
            raise HyperparameterError(f"metadata {name} is {described(value)}, not {count} finite numbers")
        return [float(number) for number in values]

    def multiplier(self, name: str, default: float = 1.0) -> float:
        """A finite number; 1 where it is 0, with which some converters say that there is none."""
        return self.number(name, default) or 1.0

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value."""
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise HyperparameterError(f"metadata {self.key(name)} is {described(value)}, not a truth value")
        return value

    def flags(self, name: str, count: int) -> list[bool] | None:
        """An array of so many truth values; None if there is no array of that name."""
        value = self._metadata.get(self.key(name))
        if not isinstance(value, np.ndarray):
            return None
        if value.dtype != np.bool_ or value.shape != (count,):
            raise HyperparameterError(
                f"metadata {self.key(name)} is {described(value)}, not {count} truth values"
            )
        return [bool(flag) for flag in value]

    def soft_cap(self, name: str, default: float) -> float:
        """How large logits get at most; 0: any."""
        cap = self.number(name, default)
        if cap < 0:
            raise HyperparameterError(f"metadata {self.key(name)} is {cap}, not positive")
        return cap

    def text(self, name: str, default: str | None = None) -> str:
        value = self._get(name, default)
        if not isinstance(value, str):
            raise HyperparameterError(f"metadata {self.key(name)} is {described(value)}, not a string")
        return value

    def _get(self, name: str, default: Any) -> Any:
        value = self._metadata.get(self.key(name), default)
        if value is None:
            raise HyperparameterError(f"metadata {self.key(name)} is missing")
        return value


def described(value: Any) -> str:
    """A metadata value for an error text, which a long one must not make long."""
    if isinstance(value, list | np.ndarray):
        return f"an array of {len(value)}"
    return repr(value[:40] if isinstance(value, str) else value)
