"""MiniMax-M2: q and k are normalised over all their heads, of which a part is rotated; experts everywhere."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, normed_qkv, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, None)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, normed_qkv(g, d, x, layer))

    return pre_norm_decoder(g, d, attention, mixture(g, p, scores="sigmoid", normalized=True))
