"""Ollama's `options`: the request's over the model's over the defaults, checked and made ready for use."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from puna.api.errors import ApiError
from puna.engine.request import SamplingParams
from puna.registry.modelfile.parameters import BOOLEANS, FLOATS, INTEGERS, TEXTS

log = logging.getLogger(__name__)

_MAX_INT = 2**31 - 1
_MAX_FLOAT = 3.4028234663852886e38  # of float32
_SEED_RANGE = 2**32
_MIN_NUM_CTX = 4
_CONTEXTS_PER_REPLY = 10
_MAX_STOPS = 64
_MAX_STOP_CHARS = 1024
_MAX_BIASES = 1024
_MAX_BIAS = 100
_MAX_TOKEN_DIGITS = 9
_SHOWN_CHARS = 64


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Every option that has an effect; names, meanings and defaults are Ollama's unless said otherwise."""

    num_ctx: int | None = None
    num_keep: int = 4
    num_predict: int = -1
    num_thread: int = 0
    num_gpu: int | None = None
    """Layers on GPUs; only llama.cpp's server has any."""
    draft_num_predict: int | None = None
    """None: the engine decides."""
    draft_model: str | None = None
    """Name of a smaller model with the same vocabulary that drafts; not one of Ollama's options."""
    stop: list[str] = []
    seed: int = -1
    top_k: int = 40
    top_p: float = 0.9
    min_p: float = 0.0
    typical_p: float = 1.0
    repeat_last_n: int = 64
    temperature: float = 0.8
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    """By token; not one of Ollama's options."""

    def sampling(self, *, num_logprobs: int, choice: int = 0) -> SamplingParams:
        """num_logprobs: as in SamplingParams; choice: number of the reply, if a prompt gets several."""
        return SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            typical_p=self.typical_p,
            repeat_last_n=self.repeat_last_n,
            repeat_penalty=self.repeat_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            seed=None if self.seed == -1 else (self.seed + choice) % _SEED_RANGE,
            logit_bias=self.logit_bias,
            num_logprobs=num_logprobs,
        )

    def max_tokens(self, context_length: int) -> int:
        """Tokens to generate at most; even "until it stops" ends after ten contexts."""
        cap = _CONTEXTS_PER_REPLY * context_length
        return min(self.num_predict, cap) if self.num_predict >= 0 else cap


def parse_options(model_params: Mapping[str, Any], requested: Mapping[str, Any]) -> Options:
    """Options of a request. ApiError (500, as Ollama has it) for a value of the wrong type.

    Options that Ollama knows and Options lacks belong to loading a model in ways that this engine does not
    have (it maps weights and sizes its batches itself): checked, without effect.
    """
    values: dict[str, Any] = {}
    for name, value in {**model_params, **_without_nulls(requested)}.items():
        if value is None:
            continue
        if name in INTEGERS:
            values[name] = _integer(name, value)
        elif name in FLOATS:
            values[name] = _float(name, value)
        elif name == "stop":
            values[name] = _strings(name, value)
        elif name == "logit_bias":
            values[name] = _biases(name, value)
        elif name in TEXTS:
            values[name] = _string(name, value)
        elif name not in BOOLEANS:
            log.warning("invalid option provided: %s", name[:_SHOWN_CHARS])
        elif not isinstance(value, bool):
            raise ApiError(500, f'option "{name}" must be of type boolean')
    if values.get("num_gpu", 0) < 0:  # as many as there is room for
        del values["num_gpu"]
    if "num_ctx" in values:
        values["num_ctx"] = max(values["num_ctx"], _MIN_NUM_CTX)
    if values.get("repeat_penalty") == 0:  # some clients say so for no penalty at all
        del values["repeat_penalty"]
    if values.get("repeat_penalty", 1.0) < 0:
        raise ApiError(400, 'option "repeat_penalty" must not be negative')
    if values.get("draft_num_predict", 0) < 0:
        raise ApiError(400, 'option "draft_num_predict" must be 0 or more')
    if values.get("repeat_last_n", 0) < -1:
        raise ApiError(400, 'option "repeat_last_n" must be -1 or more')
    return msgspec.convert(values, Options)


def _without_nulls(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ApiError(500, f'option "{name}" must be of type integer')
    limit = 2**63 if name == "seed" else _MAX_INT
    if not -limit <= value <= limit:
        raise ApiError(500, f'option "{name}" is out of range')
    return int(value)


def _float(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ApiError(500, f'option "{name}" must be of type float32')
    if not -_MAX_FLOAT <= value <= _MAX_FLOAT:
        raise ApiError(500, f'option "{name}" is out of range')
    return float(value)


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ApiError(500, f'option "{name}" must be of type string')
    return value


def _strings(name: str, value: Any) -> list[str]:
    """One text stands for a list of one."""
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list):
        raise ApiError(500, f'option "{name}" must be of type array')
    if not all(isinstance(item, str) for item in value):
        raise ApiError(500, f'option "{name}" must be of an array of strings')
    if len(value) > _MAX_STOPS or any(len(item) > _MAX_STOP_CHARS for item in value):
        raise ApiError(
            400, f'option "{name}" may have {_MAX_STOPS} texts of {_MAX_STOP_CHARS} characters at most'
        )
    return [item for item in value if item]


def _biases(name: str, value: Any) -> dict[int, float]:
    """By token, whose number is a text as JSON's keys are. Whether there is such a token is the model's."""
    if not isinstance(value, dict) or len(value) > _MAX_BIASES:
        raise ApiError(400, f"{name} must be an object with {_MAX_BIASES} tokens at most")
    biases = {}
    for token, bias in value.items():
        if not (token.isascii() and token.isdecimal() and len(token) <= _MAX_TOKEN_DIGITS):
            raise ApiError(400, f"{name} must have numbers of tokens as keys, not {token[:_SHOWN_CHARS]!r}")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not abs(bias) <= _MAX_BIAS:
            raise ApiError(400, f"{name} of token {token} must be between -{_MAX_BIAS} and {_MAX_BIAS}")
        biases[int(token)] = float(bias)
    return biases
