"""Random values of a tiny model's tensors, with which logits are lively and states neither fade nor grow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# What files keep in F32 though it has several dimensions.
_FLOATS = (
    "attn_rel_b.weight",
    "token_types.weight",
    "_coef.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_inp_shexp.weight",
    "norm.weight",
    "norm_exps.weight",
    "shortconv.conv.weight",
    "ssm_conv1d.weight",
    "ssm_conv1d_q.weight",
    "ssm_conv1d_k.weight",
    "ssm_conv1d_v.weight",
    "ssm_a",
    "ssm_d",
)
_NORMS = (
    "ffn_norm",
    "norm.weight",
    "norm_1.weight",
    "norm_2.weight",
    "norm_exps.weight",
    "post_attention_norm",
    "ssm_b_norm",
    "ssm_c_norm",
    "ssm_dt_norm",
    "post_ffw_norm",
    "scale",
    "scale.weight",
    "ssm_d",
)
# llama.cpp rounds GELU to half precision: let little come of it
_SMALL_NORMS = (".post_ffw_norm.weight", ".post_norm.weight", ".layer_output_norm.weight")


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Whether quantized files have it quantized."""
    return len(shape) > 1 and not name.endswith((*_FLOATS, ".bias"))


def values(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    return _values(name, shape, rng).astype(np.float32)


def _values(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    if name.startswith("rope_f"):
        return np.linspace(1.0, 3.0 if "short" in name else 8.0, shape[0])
    noise = rng.standard_normal(shape)
    if name.endswith("ffn_gate_inp.scale"):  # of values whose squares add up to 1
        return np.sqrt(shape[0]) * (1.0 + 0.1 * noise)
    if name.endswith("ssm_a"):
        return -rng.uniform(1.0, 8.0, shape)
    if name.endswith("ssm_dt.bias"):  # a state loses between a thousandth and most of itself with each token
        return np.log(np.expm1(np.exp(rng.uniform(np.log(0.001), np.log(0.2), shape))))
    if name.endswith(
        ("conv1d.weight", "conv.weight", "conv1d_q.weight", "conv1d_k.weight", "conv1d_v.weight")
    ):
        return noise * 0.5
    if name.endswith(_NORMS):
        return (0.1 if name.endswith(_SMALL_NORMS) else 1.0) + 0.1 * noise
    if name.endswith("attn_sinks.weight"):
        return noise
    if name.endswith(".bias") or (len(shape) == 1 and not name.endswith("gate_inp_shexp.weight")):
        return 0.1 * noise
    return noise * _scale(name) / np.sqrt(shape[-1])


def _scale(name: str) -> float:
    """What a token is weighs more than what layers make of it: rounding then changes few of the likeliest."""
    if name == "token_embd.weight":
        return 2.1
    if name.endswith("ffn_down_exps.weight"):  # which experts are chosen may hang on a rounding
        return 0.21
    return 0.15 if name.endswith("ssm_out.weight") else 0.7
