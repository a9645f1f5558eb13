"""The text part of Gemma 4, in all its forms: dense or with experts; the small ones with embeddings of each
layer's own, and with later layers that attend to what earlier ones keep.

Layers with a window have a head size and a rotation of their own. In the others only some of a head's pairs
turn: the file's factors make the frequencies of the rest next to nothing.
"""

from __future__ import annotations

import math

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed, L2Norm, Linear, Moe, MulVector, Rows, Scale, Softcap
from puna.models.architectures.gemma.per_layer_embeddings import PerLayerEmbeddings
from puna.models.architectures.gemma.shared_kv import keeping_layers, kept_by, normed_attention
from puna.models.blocks import gated, logits, norm
from puna.models.decoder import Stack
from puna.models.heads import layer_heads
from puna.models.hyperparameters import MAX_CONTEXT, Hyperparameters
from puna.models.rope import FreqFactors, rope, unscaled_rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Stack.read(p)
    window = p.integer("attention.sliding_window", maximum=MAX_CONTEXT)
    heads = layer_heads(p, layer_windows(p, d.num_layers, period=6, size=window))
    num_keeping = keeping_layers(p, d.num_layers, num_sharing=0)
    rotations = [
        unscaled_rope(p, "neox", of.head_dim, p.number("rope.freq_base_swa", 10000.0), suffix="_swa")
        if of.window
        else rope(p, "neox", of.head_dim, freq_factors)
        for of in heads
    ]

    x = g.op(Scale(math.sqrt(d.width)), g.op(Embed("token_embd")))
    own = PerLayerEmbeddings(g, d, x) if p.integer("embedding_length_per_layer_input", 0, minimum=0) else None
    for layer in range(d.num_layers):
        block = f"blk.{layer}"
        normed = rows = norm(g, d, x, f"{block}.attn_norm")
        if (
            layer == num_keeping - 1
        ):  # what follows keeps nothing of the tokens: only rows that are asked for need it
            rows, x = g.op(Rows(), normed), g.op(Rows(), x)
            if own is not None:
                own.narrow()
        keeper = kept_by(layer, num_keeping, heads[layer].window)
        y = normed_attention(g, d, heads[layer], rotations[layer], layer, normed, rows, keeper=keeper)
        x = g.op(Add(), x, norm(g, d, y, f"{block}.post_attention_norm"))
        x = g.op(Add(), x, norm(g, d, _feed_forward(g, d, p, block, x), f"{block}.post_ffw_norm"))
        if own is not None:
            x = g.op(Add(), x, own.gated(layer, x))
        if f"{block}.layer_output_scale.weight" in g.shapes:
            x = g.op(MulVector(f"{block}.layer_output_scale.weight"), x)
    y = logits(g, norm(g, d, x, "output_norm"))
    softcap = p.soft_cap("final_logit_softcapping", 0.0)
    return g.op(Softcap(softcap), y) if softcap else y


def _feed_forward(g: Tracer, d: Stack, p: Hyperparameters, block: str, x: Value) -> Value:
    """Gated, beside experts where the file has them: each with norms of its own."""
    y = gated(g, norm(g, d, x, f"{block}.ffn_norm"), block, "gelu")
    if f"{block}.ffn_gate_inp.weight" not in g.shapes:
        return y
    moe = Moe(
        name=block,
        num_used=p.integer("expert_used_count"),
        scores="softmax",
        normalized=True,
        scale=1.0,
        activation="gelu",
    )
    unit = g.op(L2Norm(d.width, d.width * d.norm_eps), x)
    scores = g.op(Linear(f"{block}.ffn_gate_inp"), g.op(MulVector(f"{block}.ffn_gate_inp.scale"), unit))
    chosen = g.op(moe, norm(g, d, x, f"{block}.pre_ffw_norm_2"), scores)
    return g.op(
        Add(), norm(g, d, y, f"{block}.post_ffw_norm_1"), norm(g, d, chosen, f"{block}.post_ffw_norm_2")
    )
