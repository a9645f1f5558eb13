"""DeepSeek V2, V3 and R1, GLM-4.7-Flash, Kimi K2: latents instead of keys and values, and experts.

Attention is computed on latents (the absorbed form) in prompts and replies alike.
"""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec

from puna.graph import GraphError, Tracer, Value
from puna.graph.ops import Columns, Concat, HeadLinear, LatentAttention, Linear, Rope
from puna.models.architectures.latents.queries import queries
from puna.models.blocks import Part, norm, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import HyperparameterError, Hyperparameters
from puna.models.mixtures import mixture
from puna.models.prediction import prediction_head
from puna.models.rope import FreqFactors, rope, yarn_factor

_GLM_FLASH_LAYERS, _GLM_FLASH_TOKENS = (47, 48), 154880


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    if "blk.0.attn_kv_b.weight" in g.shapes:
        raise GraphError(
            "tensor blk.0.attn_kv_b.weight: files with the products of keys and of values in one tensor are "
            "not supported; newer ones have attn_k_b and attn_v_b"
        )
    if p.number("attention.temperature_scale", 0.0):
        raise HyperparameterError(f"metadata {p.key('attention.temperature_scale')} is not supported")
    d = Decoder.read(p)
    return pre_norm_decoder(g, d, *_parts(g, p, d))


def trace_prediction(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    return prediction_head(g, d, *_parts(g, p, d))


def _parts(g: Tracer, p: Hyperparameters, d: Decoder) -> tuple[Part, Part]:
    latents = Latents.read(p)

    def attention(layer: int, x: Value) -> Value:
        return latent_attention(g, d, latents, layer, x)

    return attention, mixture(g, p, scores=_scores(g, d), normalized=False)


class Latents(msgspec.Struct, frozen=True):
    """Sizes of multi-head latent attention (DeepSeek-AI, 2024, section 2.1)."""

    rank: int
    """Of keys and values: columns of the latent."""
    plain_dim: int
    """Of a head's query and key, without a position."""
    rotation: Rope
    """Of heads that are a latent and then what is rotated."""
    scale: float
    """Of scores."""

    @classmethod
    def read(cls, p: Hyperparameters) -> Latents:
        rank, key_dim = p.integer("attention.kv_lora_rank"), p.integer("attention.key_length_mla")
        rotary_dim = p.integer("rope.dimension_count")
        if rotary_dim >= key_dim:
            raise HyperparameterError(
                f"metadata {p.key('rope.dimension_count')} is {rotary_dim} for keys of {key_dim}"
            )
        rotation = rope(p, "normal", rotary_dim, None)
        # YaRN's temperature, for which the file has a tenth of what DeepSeek calls mscale_all_dim.
        temperature = 1.0 + p.number("rope.scaling.yarn_log_multiplier", 0.0) * math.log(yarn_factor(p))
        scale = rotation.scale * temperature
        return cls(
            rank=rank,
            plain_dim=key_dim - rotary_dim,
            rotation=replace(rotation, head_dim=rank + rotary_dim, begin=rank),
            scale=scale * scale / math.sqrt(key_dim),  # the backend refuses an infinite one
        )


def latent_attention(g: Tracer, d: Decoder, latents: Latents, layer: int, x: Value) -> Value:
    block, rank, head_dim = f"blk.{layer}", latents.rank, latents.rotation.head_dim
    rotary_dim, plain_dim = head_dim - rank, latents.plain_dim
    q, key_dim = queries(g, d, block, x), plain_dim + rotary_dim
    plain = g.op(Columns(0, plain_dim, key_dim), q)
    absorbed = g.op(HeadLinear(f"{block}.attn_k_b", d.num_heads), plain)
    q = g.op(Concat(d.num_heads), absorbed, g.op(Columns(plain_dim, rotary_dim, key_dim), q))
    kv = g.op(Linear(f"{block}.attn_kv_a_mqa"), x)
    latent = norm(g, d, g.op(Columns(0, rank, head_dim), kv), f"{block}.attn_kv_a_norm")
    k = g.op(Concat(1), latent, g.op(Columns(rank, rotary_dim, head_dim), kv))
    attention = LatentAttention(layer, d.num_heads, head_dim, rank, latents.scale)
    seen = g.op(attention, g.op(latents.rotation, q), g.op(latents.rotation, k))
    values = g.op(HeadLinear(f"{block}.attn_v_b", d.num_heads), seen)
    return g.op(Linear(f"{block}.attn_output"), values)


def _scores(g: Tracer, d: Decoder) -> str:
    """Of files from before there was a number for them: DeepSeek V2's, or GLM-4.7-Flash's."""
    num_tokens = g.shapes.matrix("token_embd.weight")[1]
    is_glm = d.num_layers in _GLM_FLASH_LAYERS and num_tokens == _GLM_FLASH_TOKENS
    return "sigmoid" if is_glm else "softmax"
