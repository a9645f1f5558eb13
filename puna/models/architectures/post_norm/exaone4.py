"""EXAONE 4: norms behind what a layer adds; where some layers have windows, the others do not rotate."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, normed_qkv, post_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    windows = layer_windows(p, d.num_layers, period=4, size=0)
    rotation = rope(p, "neox", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        rotates = windows[layer] > 0 or not any(windows)
        q_k_v = normed_qkv(g, d, x, layer)
        return causal_attention(g, d, layer, rotation if rotates else None, q_k_v, window=windows[layer])

    return post_norm_decoder(g, d, attention)
