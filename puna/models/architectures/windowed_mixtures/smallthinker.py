"""SmallThinker: experts are chosen in front of attention; layers without a window do not rotate."""

from __future__ import annotations

from dataclasses import replace

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed, Linear, Rows
from puna.models.blocks import causal_attention, fused_qkv, logits, norm
from puna.models.decoder import Decoder
from puna.models.hyperparameters import MAX_CONTEXT, Hyperparameters
from puna.models.mixtures import moe
from puna.models.rope import FreqFactors, rope

_WINDOW = 4096  # whatever size the file states


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, rotation = Decoder.read(p), None
    has_windows = p.integer("attention.sliding_window", 0, minimum=0, maximum=MAX_CONTEXT) > 0
    layout = p.flags("attention.sliding_window_pattern", d.num_layers)
    rotation = rope(p, "neox", d.head_dim, None)
    x = g.op(Embed("token_embd"))
    for layer in range(d.num_layers):
        block = f"blk.{layer}"
        chosen = g.op(Linear(f"{block}.ffn_gate_inp"), x)
        is_windowed = has_windows and (layout[layer] if layout else layer % 4 != 0)
        rotates = not has_windows or layer % 4 != 0
        y = causal_attention(
            g,
            d,
            layer,
            rotation if rotates else None,
            fused_qkv(g, d, norm(g, d, x, f"{block}.attn_norm"), layer),
            window=_WINDOW if is_windowed else 0,
        )
        x = g.op(Add(), x, y)
        if layer == d.num_layers - 1:
            x, chosen = g.op(Rows(), x), g.op(Rows(), chosen)
        experts = replace(moe(p, block, scores="softmax", normalized=True), activation="relu")
        x = g.op(Add(), x, g.op(experts, norm(g, d, x, f"{block}.ffn_norm"), chosen))
    return logits(g, norm(g, d, x, "output_norm"))
