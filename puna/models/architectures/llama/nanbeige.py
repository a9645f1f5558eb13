"""Nanbeige with loops: the layers are gone through several times, with keys and values of each time."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed, Rows
from puna.models.blocks import causal_attention, gated, logits, norm, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import HyperparameterError, Hyperparameters
from puna.models.rope import FreqFactors, rope

_MAX_LAYERS = 1024  # of all loops


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d, num_loops = Decoder.read(p), p.integer("num_loops", 1)
    if d.num_layers * num_loops > _MAX_LAYERS:
        raise HyperparameterError(f"metadata {p.key('num_loops')} is {num_loops} for {d.num_layers} layers")
    rotation, scale = rope(p, "normal", d.head_dim, freq_factors), p.number("attention.scale", 0.0) or None
    norms_between = not p.flag("skip_loop_final_norm")
    x = g.op(Embed("token_embd"))
    for state in range(d.num_layers * num_loops):
        layer = state % d.num_layers
        block = f"blk.{layer}"
        if state and layer == 0 and norms_between:
            x = norm(g, d, x, "output_norm")
        q_k_v = qkv(g, norm(g, d, x, f"{block}.attn_norm"), layer)
        x = g.op(Add(), x, causal_attention(g, d, layer, rotation, q_k_v, scale=scale, state=state))
        if state == d.num_layers * num_loops - 1:
            x = g.op(Rows(), x)
        x = g.op(Add(), x, gated(g, norm(g, d, x, f"{block}.ffn_norm"), block, "silu"))
    return logits(g, norm(g, d, x, "output_norm"))
