"""Llama 4: three layers that rotate and see the tokens of their own chunk, to one that sees all and rotates
nothing; experts whose weights are put on what they get, beside one that all tokens share.
"""

from __future__ import annotations

import math

from puna.graph import Tracer, Value
from puna.graph.ops import L2Norm, Temperature
from puna.models.blocks import causal_attention, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import MAX_CONTEXT, Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope
from puna.models.windows import layer_windows

_CHUNK = 8192
_TEMPERATURE = Temperature(scale=0.1, length=8192, offset=1)
_EXPERTS_OF_MAVERICK = 128  # which does not normalise queries and keys


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    size = p.integer("attention.chunk_size", _CHUNK, maximum=MAX_CONTEXT)  # Ollama's name
    chunks = layer_windows(p, d.num_layers, period=4, size=size)
    rotation = rope(p, "normal", d.head_dim, freq_factors)
    has_norm = p.flag("use_qk_norm", p.integer("expert_count", 0, minimum=0) != _EXPERTS_OF_MAVERICK)
    # Root mean squares made 1: as lengths, which rotation leaves alone, and the rest in the scale of scores.
    unit, unit_scale = L2Norm(d.head_dim, d.head_dim * d.norm_eps), math.sqrt(d.head_dim)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = qkv(g, x, layer)
        if any(chunks) and layer % 4 == 3:
            return causal_attention(g, d, layer, None, (g.op(_TEMPERATURE, q), k, v), chunk=chunks[layer])
        scale = None
        if has_norm:
            q, k, scale = g.op(unit, q), g.op(unit, k), unit_scale
        return causal_attention(g, d, layer, rotation, (q, k, v), scale=scale, chunk=chunks[layer])

    feed_forward = mixture(g, p, scores="sigmoid", normalized=False, weighs_input=True)
    return pre_norm_decoder(g, d, attention, feed_forward)
