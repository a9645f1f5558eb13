"""K-EXAONE: normalised heads, experts; only layers with a window rotate."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, normed_qkv, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, freq_factors)
    windows = layer_windows(p, d.num_layers, period=4, size=128)

    def attention(layer: int, x: Value) -> Value:
        window = windows[layer]
        turn = rotation if window else None
        return causal_attention(g, d, layer, turn, normed_qkv(g, d, x, layer), window=window)

    return pre_norm_decoder(g, d, attention, mixture(g, p, scores="sigmoid", normalized=False))
