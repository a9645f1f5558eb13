"""What requests of all kinds say of how tokens are drawn."""

from __future__ import annotations

from typing import Any

import msgspec

from puna.api.errors import ApiError
from puna.api.requests import Extensions

_MAX_TOKENS = 2**31 - 1
_SEEDS = range(-(2**63), 2**63)
_MAX_FLOAT = 3.4e38  # of 32 bits


class StreamOptions(msgspec.Struct):
    """`stream_options`."""

    include_usage: bool = False


class SamplingRequest(Extensions, kw_only=True):
    """Fields that both kinds of completion share."""

    model: str = ""
    stream: bool = False
    stream_options: StreamOptions = msgspec.field(default_factory=StreamOptions)
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    stop: Any = None
    logit_bias: dict[str, float] = msgspec.field(default_factory=dict)
    n: int = 1

    def options(self) -> dict[str, Any]:
        """As Ollama's options: temperature and top_p are OpenAI's, whatever the model's parameters say.
        ApiError (400).
        """
        return sampling_options(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            num_predict=reply_limit("max_tokens", self.max_tokens),
            seed=self.seed,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            stop=_stop_list(self.stop),
            logit_bias=self.logit_bias or None,
        )


def sampling_options(**options: Any) -> dict[str, Any]:
    """Those of Ollama's options that are given. ApiError (400) for numbers that no option can be."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if isinstance(value, float) and not -_MAX_FLOAT <= value <= _MAX_FLOAT:
            raise ApiError(400, f"{name} is out of range")
    if given.get("seed", 0) not in _SEEDS:
        raise ApiError(400, "seed is out of range: it has 64 bits")
    return given


def reply_limit(name: str, value: int | None) -> int | None:
    """Tokens of a reply; negative: until it ends. ApiError (400) names the field."""
    if value is not None and not -_MAX_TOKENS <= value <= _MAX_TOKENS:
        raise ApiError(400, f"{name} must not be more than {_MAX_TOKENS}")
    return value


def _stop_list(stop: Any) -> list[str] | None:
    if stop is None or (isinstance(stop, list) and not stop):
        return None
    for item in (items := stop if isinstance(stop, list) else [stop]):
        if not isinstance(item, str):
            raise ApiError(400, f"invalid type for 'stop' field: {type(item).__name__}")
    return items
