"""Gemma 2: every other layer has a window; scores of attention and logits have soft caps."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, post_norm_decoder, rotated
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope_config
from puna.models.windows import layer_states

_LAYERS_OF_27B = 46


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rope = rope_config(p, "neox", d.head_dim, None)
    states = layer_states(p, d.num_layers, period=2, size=4096)
    scale = d.width_per_head**-0.5 if d.num_layers == _LAYERS_OF_27B else d.head_dim**-0.5
    softcap = p.soft_cap("attn_logit_softcapping", 50.0)

    def attention(layer: int, x: Value) -> Value:
        block = f"blk.{layer}"
        q, k, v = (g.linear(x, f"{block}.attn_{part}") for part in "qkv")
        q, k = rotated(g, d, rope, q, k)
        return causal_attention(g, d, layer, q, k, v, scale=scale, state=states[layer], softcap=softcap)

    return post_norm_decoder(g, d, attention, softcap=p.soft_cap("final_logit_softcapping", 30.0))
