"""Mellum 2: normalised heads, experts; layers with a window leave the scaling of positions out."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, normed_qkv, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope, unscaled_rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    windows = layer_windows(p, d.num_layers, period=4, size=0)
    base = p.number("rope.freq_base", 10000.0)
    rotation, windowed = rope(p, "neox", d.head_dim, None), unscaled_rope(p, "neox", d.head_dim, base)

    def attention(layer: int, x: Value) -> Value:
        turn, window = windowed if windows[layer] else rotation, windows[layer]
        return causal_attention(g, d, layer, turn, normed_qkv(g, d, x, layer), window=window)

    return pre_norm_decoder(g, d, attention, mixture(g, p, scores="softmax", normalized=True))
