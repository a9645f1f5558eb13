"""Attention on latents instead of keys and values (MLA): the absorbed form, in prompts and replies alike."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec

from puna.graph import Tracer, Value
from puna.graph.ops import Columns, Concat, HeadLinear, LatentAttention, Linear, Rope, Temperature
from puna.models.architectures.latents.queries import queries
from puna.models.blocks import norm
from puna.models.decoder import Decoder
from puna.models.hyperparameters import MAX_CONTEXT, HyperparameterError, Hyperparameters
from puna.models.rope import rope, yarn_factor


class Latents(msgspec.Struct, frozen=True):
    """Sizes of multi-head latent attention (DeepSeek-AI, 2024, section 2.1)."""

    rank: int
    """Of keys and values: columns of the latent."""
    plain_dim: int
    """Of a head's query and key, without a position."""
    rotary_dim: int
    """Of what all heads' keys share, which may be rotated."""
    rotation: Rope | None
    """Of heads that are a latent and then what is rotated."""
    scale: float
    """Of scores."""
    temperature: Temperature | None
    """Of queries, by their positions."""

    @classmethod
    def read(cls, p: Hyperparameters, *, stretches: bool = False, rotates: bool = True) -> Latents:
        """stretches: whether the rotation keeps what the file does not take back of YaRN's factor. rotates:
        whether there is one at all.
        """
        rank, key_dim = p.integer("attention.kv_lora_rank"), p.integer("attention.key_length_mla")
        rotary_dim = p.integer("rope.dimension_count")
        if rotary_dim >= key_dim:
            raise HyperparameterError(
                f"metadata {p.key('rope.dimension_count')} is {rotary_dim} for keys of {key_dim}"
            )
        rotation = rope(p, "normal", rotary_dim, None)
        # What the file takes back: a tenth of what DeepSeek calls mscale_all_dim.
        part, stretch = p.number("rope.scaling.yarn_log_multiplier", 0.0), math.log(yarn_factor(p))
        of_yarn = 1.0 + part * stretch
        if stretches and part:
            rotation = replace(rotation, scale=rotation.scale * (1.0 + 0.1 * stretch) / of_yarn)
        scale = rotation.scale * of_yarn
        return cls(
            rank=rank,
            plain_dim=key_dim - rotary_dim,
            rotary_dim=rotary_dim,
            rotation=replace(rotation, head_dim=rank + rotary_dim, begin=rank) if rotates else None,
            scale=(scale * scale if rotates else 1.0) / math.sqrt(key_dim),  # the backend refuses infinity
            temperature=_temperature(p),
        )


def latent_attention(g: Tracer, d: Decoder, latents: Latents, layer: int, x: Value) -> Value:
    block, rank, rotary_dim, plain_dim = f"blk.{layer}", latents.rank, latents.rotary_dim, latents.plain_dim
    head_dim = rank + rotary_dim
    q, key_dim = queries(g, d, block, x), plain_dim + rotary_dim
    plain = g.op(Columns(0, plain_dim, key_dim), q)
    absorbed = g.op(HeadLinear(f"{block}.attn_k_b", d.num_heads), plain)
    q = g.op(Concat(d.num_heads), absorbed, g.op(Columns(plain_dim, rotary_dim, key_dim), q))
    kv = g.op(Linear(f"{block}.attn_kv_a_mqa"), x)
    latent = norm(g, d, g.op(Columns(0, rank, head_dim), kv), f"{block}.attn_kv_a_norm")
    k = g.op(Concat(1), latent, g.op(Columns(rank, rotary_dim, head_dim), kv))
    attention = LatentAttention(layer, d.num_heads, head_dim, rank, latents.scale)
    if latents.rotation is not None:
        q, k = g.op(latents.rotation, q), g.op(latents.rotation, k)
    if latents.temperature is not None:
        q = g.op(latents.temperature, q)
    seen = g.op(attention, q, k)
    values = g.op(HeadLinear(f"{block}.attn_v_b", d.num_heads), seen)
    return g.op(Linear(f"{block}.attn_output"), values)


def _temperature(p: Hyperparameters) -> Temperature | None:
    scale = p.number("attention.temperature_scale", 0.0)
    if not scale:
        return None
    return Temperature(scale, p.integer("attention.temperature_length", maximum=MAX_CONTEXT))
