"""Gemma 2: every other layer has a window; scores of attention and logits have soft caps."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, gemma_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope
from puna.models.windows import layer_windows

_LAYERS_OF_27B = 46


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, None)
    windows = layer_windows(p, d.num_layers, period=2, size=4096)
    scale = d.width_per_head**-0.5 if d.num_layers == _LAYERS_OF_27B else None
    softcap = p.soft_cap("attn_logit_softcapping", 50.0)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(
            g, d, layer, rotation, qkv(g, x, layer), scale=scale, window=windows[layer], softcap=softcap
        )

    return gemma_decoder(g, d, attention, softcap=p.soft_cap("final_logit_softcapping", 30.0))
