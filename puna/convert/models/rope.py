"""How a configuration says rotary embeddings are scaled, in GGUF's words."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.family import Hyperparameters
from puna.convert.models.sizes import head_dim
from puna.gguf.writer import GgufValue, array, float32, string, uint32

_LOCAL_BASES = ("rope_local_base_freq", "local_rope_theta")
_LONG = ("longrope", "su")
_UNSCALED = ("", "default", "mrope")
_BY_ALPHA = "dynamic"
_ALPHA_CONTEXT = 256 << 10


def rope_parameters(config: Config) -> Config:
    """Of layers that attend to everything."""
    parameters = config.section("rope_parameters", "rope_scaling")
    return parameters.section("full_attention") if parameters.has("full_attention") else parameters


def _kind(parameters: Config) -> str:
    return parameters.text("rope_type", parameters.text("type")).lower()


def _base(config: Config) -> float:
    said = config.number("rope_theta", "global_rope_theta", "rotary_emb_base", default=10000.0)
    return rope_parameters(config).number("rope_theta", default=said)


def rope_values(config: Config) -> Hyperparameters:
    """Raises ConversionError for a scaling that is not known."""
    parameters = rope_parameters(config)
    values: Hyperparameters = {"rope.freq_base": float32(_base(config))}
    local = config.section("rope_parameters").section("sliding_attention")
    if local.has("rope_theta") or any(map(config.has, _LOCAL_BASES)):
        base = local.number("rope_theta", default=config.number(*_LOCAL_BASES, default=10000.0))
        values["rope.freq_base_swa"] = float32(base)
    if parameters.has("mrope_section"):
        sections = [int(size) for size in parameters.numbers("mrope_section")[:4]]
        values["rope.dimension_sections"] = array("int32", sections + [0] * (4 - len(sections)))
    kind = _kind(parameters)
    if kind in ("linear", "yarn"):
        values["rope.scaling.type"] = string(kind)
        values["rope.scaling.factor"] = float32(parameters.number("factor"))
    elif kind in _LONG:
        values |= _long_rope_values(config, parameters)
    elif kind == _BY_ALPHA and parameters.has("alpha"):
        pass  # of Hunyuan only: alpha_values()
    elif kind not in (*_UNSCALED, "llama3"):
        raise ConversionError(
            f"config.json: rope scaling {kind[:40]!r} is not known (linear, yarn, llama3, longrope are)"
        )
    if kind == "yarn":
        original = parameters.integer(
            "original_max_position_embeddings", default=config.integer("max_position_embeddings")
        )
        values["rope.scaling.original_context_length"] = uint32(original)
        for name, key in (
            ("attention_factor", "attn_factor"),
            ("beta_fast", "yarn_beta_fast"),
            ("beta_slow", "yarn_beta_slow"),
        ):
            if parameters.has(name):
                values[f"rope.scaling.{key}"] = float32(parameters.number(name))
    return values


def alpha_values(config: Config) -> Hyperparameters:
    """Of Hunyuan, whose frequencies are for a context that is longer than its configuration says."""
    parameters = rope_parameters(config)
    dim = head_dim(config)
    if _kind(parameters) != _BY_ALPHA or dim <= 2:
        return {}
    alpha = parameters.number("alpha")
    if alpha <= 0:
        raise ConversionError(f"config.json: alpha is {alpha}, not positive")
    base = _base(config) * alpha ** (dim / (dim - 2))
    return {
        "context_length": uint32(_ALPHA_CONTEXT),
        "rope.freq_base": float32(base),
        "rope.scaling.type": string("none"),
        "rope.scaling.factor": float32(1.0),
        "rope.scaling.original_context_length": uint32(_ALPHA_CONTEXT),
    }


def _long_rope_values(config: Config, parameters: Config) -> Hyperparameters:
    longest = config.integer("max_position_embeddings")
    original = _original_length(config, parameters)
    scale = longest / max(1, original)
    attention = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 and original > 1 else 1.0
    return {
        "rope.scaling.original_context_length": uint32(original),
        "rope.scaling.attn_factor": float32(attention),
    }


def _original_length(config: Config, parameters: Config) -> int:
    name = "original_max_position_embeddings"
    said = config.integer(name, default=config.integer("max_position_embeddings"))
    return parameters.integer(name, default=said)


def rotary_dims(config: Config, default: float) -> GgufValue:
    """Of a head's, how many are rotated: the share that the configuration says, else `default`."""
    head_dim = config.integer(
        "head_dim",
        default=config.integer("hidden_size") // max(1, config.integer("num_attention_heads")),
    )
    said = config.number("partial_rotary_factor", "rotary_pct", "rope_pct", default=default)
    share = rope_parameters(config).number("partial_rotary_factor", default=said)
    if not 0 <= share <= 1:
        raise ConversionError(f"config.json: a share of {share} of a head cannot be rotated")
    return uint32(int(share * head_dim))


def rope_tensors(config: Config, head_dim: int) -> dict[str, NDArray[np.float32]]:
    """By GGUF's names: what frequencies are divided by, for scalings that say it for each."""
    parameters = rope_parameters(config)
    if (factors := frequency_factors(config, head_dim)) is not None:
        return {"rope_freqs.weight": factors}
    if _kind(parameters) in _LONG:
        return {
            f"rope_factors_{name}.weight": parameters.numbers(f"{name}_factor") for name in ("long", "short")
        }
    return {}


def frequency_factors(config: Config, head_dim: int) -> NDArray[np.float32] | None:
    """By which frequencies are divided, for Llama 3.1's scaling: slow ones by its factor, fast ones by 1,
    those between by something between. None where there is no such scaling. Raises ConversionError.
    """
    parameters = rope_parameters(config)
    if _kind(parameters) != "llama3":
        return None
    factor = parameters.number("factor", default=8.0)
    slow = parameters.number("low_freq_factor", default=1.0)
    fast = parameters.number("high_freq_factor", default=4.0)
    original = parameters.number("original_max_position_embeddings", default=8192)
    if factor <= 0 or not 0 < slow < fast:
        raise ConversionError("config.json: the factors of rope_scaling make no sense")
    single = np.float32  # as the reference computes it, so that files are equal
    frequencies = 1 / single(_base(config)) ** (np.arange(0, head_dim, 2, dtype=single) / single(head_dim))
    turns = single(original) / (single(2 * math.pi) / frequencies)
    smooth = np.clip((turns - single(slow)) / single(fast - slow), 0, 1)
    factors: NDArray[np.float32] = (1 / ((1 - smooth) / single(factor) + smooth)).astype(single)
    return factors
