"""Rotary frequencies of a model, with whatever scaling its metadata and tensors ask for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from puna.graph.ops import Rope
from puna.models.hyperparameters import MAX_CONTEXT, HyperparameterError, Hyperparameters, described

_KINDS = ("linear", "yarn", "longrope")

FreqFactors = Callable[[int], NDArray[np.float32]]
"""Reads so many values, by which frequencies are divided (Llama 3's scaling is stored that way).

Raises HyperparameterError if there are not so many.
"""


def rope(
    p: Hyperparameters,
    style: Literal["normal", "neox"],
    head_dim: int,
    freq_factors: FreqFactors | None,
    *,
    base: float = 10000.0,
    suffix: str = "",
    share: int = 1,
) -> Rope:
    """The rotation that a file describes; base: where it names none. suffix: of the keys, "_swa" for layers
    with a window. share: of the dimensions that the file names, one in so many is rotated.

    Frequencies that are not finite are left to the backend, which refuses them.
    """
    dim = _rotary_dim(p, head_dim, suffix, share=share)
    base = p.number(f"rope.freq_base{suffix}", base)
    inv_freq = _frequencies(p, dim, base)
    with np.errstate(all="ignore"):
        if freq_factors is not None:
            inv_freq = inv_freq / freq_factors(inv_freq.size)
        inv_freq, scale = _scaled(p, inv_freq, dim, base)
        return Rope(head_dim, style=style, inv_freq=inv_freq.astype(np.float32), scale=scale)


def unscaled_rope(
    p: Hyperparameters, style: Literal["normal", "neox"], head_dim: int, base: float, *, suffix: str = ""
) -> Rope:
    """A rotation that the file's scaling leaves alone. suffix: of the key with the number of dimensions."""
    inv_freq = _frequencies(p, _rotary_dim(p, head_dim, suffix), base)
    return Rope(head_dim, style=style, inv_freq=inv_freq.astype(np.float32))


def _rotary_dim(p: Hyperparameters, head_dim: int, suffix: str = "", *, share: int = 1) -> int:
    name = f"rope.dimension_count{suffix}"
    default = min(head_dim, p.integer("rope.dimension_count", head_dim)) if suffix else head_dim
    dim = p.integer(name, default, maximum=head_dim)
    if dim % (2 * share):
        raise HyperparameterError(f"metadata {p.key(name)} is {dim}, no multiple of {2 * share}")
    return dim // share


def _frequencies(p: Hyperparameters, dim: int, base: float) -> NDArray[np.float64]:
    if base <= 1:
        raise HyperparameterError(f"metadata {p.key('rope.freq_base')} is {base}, not more than 1")
    inv_freq: NDArray[np.float64] = base ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    return inv_freq


def _scaled(
    p: Hyperparameters, inv_freq: NDArray[np.float64], dim: int, base: float
) -> tuple[NDArray[np.float64], float]:
    """Frequencies, and the scale of cosine and sine."""
    kind, scale = p.text("rope.scaling.type", "linear"), p.number("rope.scaling.attn_factor", 1.0)
    factor = _scaling_factor(p)
    if kind == "none" or (factor == 1.0 and kind in _KINDS):
        return inv_freq, scale
    if kind in ("linear", "longrope"):
        return inv_freq / factor, scale
    if kind == "yarn":
        if not p.number("rope.scaling.yarn_log_multiplier", 0.0):  # DeepSeek's: the scores' scale has it all
            scale *= 1.0 + 0.1 * math.log(factor)
        return _yarn(p, inv_freq, factor, dim, base), scale
    known = ", ".join(_KINDS)
    raise HyperparameterError(f"rope scaling {described(kind)} is not supported (none, {known} are)")


def original_context(p: Hyperparameters) -> int:
    """Tokens, before the context was stretched."""
    return p.integer(
        "rope.scaling.original_context_length",
        p.integer("context_length", maximum=MAX_CONTEXT),
        maximum=MAX_CONTEXT,
    )


def uses_long_factors(p: Hyperparameters) -> bool:
    """Of files with factors for short and for long contexts, which those divide by (Ding et al., 2024).

    What a token's keys are must not hang on how long its context gets: so the model's own context decides,
    which is what llama.cpp takes where no other is configured.
    """
    return p.integer("context_length", maximum=MAX_CONTEXT) > original_context(p)


def has_sections(p: Hyperparameters) -> bool:
    """Whether heads rotate by several positions (of time, height, width), which for text are the same."""
    sections = p.integers("rope.dimension_sections", 4, 0, maximum=1 << 16)
    return sections[0] > 0 and sections[1] > 0


def yarn_factor(p: Hyperparameters) -> float:
    """By how much YaRN stretches the context; 1 if the file asks for none."""
    return _scaling_factor(p) if p.text("rope.scaling.type", "none") == "yarn" else 1.0


def _scaling_factor(p: Hyperparameters) -> float:
    name = "rope.scaling.factor" if p.has("rope.scaling.factor") else "rope.scale_linear"
    factor = p.multiplier(name)
    if factor < 0:
        raise HyperparameterError(f"metadata {p.key(name)} is {factor}, not positive")
    return factor


def _yarn(
    p: Hyperparameters, inv_freq: NDArray[np.float64], factor: float, dim: int, base: float
) -> NDArray[np.float64]:
    """Peng et al., 2023, section 3.2: fast dimensions keep their frequency, slow ones are interpolated."""

    def dimension_with(rotations: float) -> float:
        return dim * math.log(original_context(p) / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(0.0, math.floor(dimension_with(_rotations(p, "yarn_beta_fast", 32.0))))
    high = min(dim - 1.0, math.ceil(dimension_with(_rotations(p, "yarn_beta_slow", 1.0))))
    ramp = np.clip((np.arange(dim // 2) - low) / max(0.001, high - low), 0.0, 1.0)
    mixed: NDArray[np.float64] = inv_freq * (1.0 - ramp) + inv_freq / factor * ramp
    return mixed


def _rotations(p: Hyperparameters, name: str, default: float) -> float:
    """In the original context."""
    value = p.multiplier(f"rope.scaling.{name}", default)
    if value < 0:
        raise HyperparameterError(f"metadata {p.key(f'rope.scaling.{name}')} is {value}, not positive")
    return value
