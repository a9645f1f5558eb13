"""OLMo 2 and 3: norms behind what a layer adds, and over all of q and k; OLMo 3 has windows."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, normed_qkv, post_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope, unscaled_rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    windows = layer_windows(p, d.num_layers, period=4, size=0)
    full = rope(p, "neox", d.head_dim, freq_factors)
    windowed = unscaled_rope(p, "neox", d.head_dim, p.number("rope.freq_base", 10000.0))

    def attention(layer: int, x: Value) -> Value:
        rotation = windowed if windows[layer] else full
        return causal_attention(g, d, layer, rotation, normed_qkv(g, d, x, layer), window=windows[layer])

    return post_norm_decoder(g, d, attention)
