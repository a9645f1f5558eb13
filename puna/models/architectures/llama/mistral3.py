"""Mistral 3 and Ministral: Llama with YaRN, whose queries grow with their positions in long contexts."""

from __future__ import annotations

import math
from dataclasses import replace

from puna.graph import Tracer, Value
from puna.graph.ops import Rope, Temperature
from puna.models.blocks import causal_attention, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, original_context, rope, yarn_factor


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = _with_attention_factor(p, rope(p, "normal", d.head_dim, freq_factors))
    temperature = Temperature(p.number("attention.temperature_scale", 0.0), original_context(p))

    def attention(layer: int, x: Value) -> Value:
        q, k, v = qkv(g, x, layer)
        if temperature.scale:
            q = g.op(temperature, q)
        return causal_attention(g, d, layer, rotation, (q, k, v))

    return pre_norm_decoder(g, d, attention, mixture(g, p, scores="softmax", normalized=True))


def _with_attention_factor(p: Hyperparameters, rotation: Rope) -> Rope:
    """YaRN's, of which the file takes back all (1) or a part; rope() takes back all of it."""
    part = p.number("rope.scaling.yarn_log_multiplier", 0.0)
    stretch = 0.1 * math.log(yarn_factor(p))
    return (
        replace(rotation, scale=rotation.scale * (1 + stretch) / (1 + part * stretch)) if part else rotation
    )
