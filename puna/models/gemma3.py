"""The text part of Gemma 3: five layers with a window to one without; each kind has its own rotation."""

from __future__ import annotations

from puna.graph import SlidingWindow, Tracer, Value
from puna.models.blocks import causal_attention, post_norm_decoder, rotated
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope_config, unscaled_rope_config
from puna.models.windows import layer_states

_LAYERS_OF_27B = 62


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    full = rope_config(p, "neox", d.head_dim, None, base=1e6)
    windowed = unscaled_rope_config(p, "neox", d.head_dim, _windowed_base(p))
    states = layer_states(p, d.num_layers, period=6, size=0)
    scale = d.width_per_head**-0.5 if d.num_layers == _LAYERS_OF_27B else d.head_dim**-0.5

    def attention(layer: int, x: Value) -> Value:
        block, state = f"blk.{layer}", states[layer]
        q = g.rms_norm(g.linear(x, f"{block}.attn_q"), f"{block}.attn_q_norm", d.norm_eps)
        k = g.rms_norm(g.linear(x, f"{block}.attn_k"), f"{block}.attn_k_norm", d.norm_eps)
        v = g.linear(x, f"{block}.attn_v")
        q, k = rotated(g, d, windowed if isinstance(state, SlidingWindow) else full, q, k)
        return causal_attention(g, d, layer, q, k, v, scale=scale, state=state)

    return post_norm_decoder(g, d, attention, softcap=p.soft_cap("final_logit_softcapping", 0.0))


def _windowed_base(p: Hyperparameters) -> float:
    """Named in one way by llama.cpp and in another by Ollama."""
    return p.number("rope.freq_base_swa", p.number("rope.local.freq_base", 10000.0))
