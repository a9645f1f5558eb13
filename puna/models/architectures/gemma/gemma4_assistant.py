"""Gemma 4's drafter: a few narrow layers that read a model's hidden states, and attend to what it keeps."""

from __future__ import annotations

import math
from dataclasses import replace

from puna.graph import Tracer, Value
from puna.graph.ops import (
    Add,
    Concat,
    Embed,
    HiddenBefore,
    Linear,
    MulVector,
    Rope,
    Rows,
    SampledRows,
    Scale,
    SharedAttention,
)
from puna.models.architectures.gemma.shared_kv import keeping_layers, kept_by
from puna.models.blocks import gated, norm
from puna.models.decoder import Stack
from puna.models.heads import Heads, layer_heads
from puna.models.hyperparameters import MAX_CONTEXT, HyperparameterError, Hyperparameters
from puna.models.rope import FreqFactors, rope, unscaled_rope
from puna.models.windows import layer_windows

MODEL = "gemma4"


def trace(
    g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None, model: Hyperparameters, own: str
) -> Value:
    """model: what it drafts for; own: what stands before the names of its own tensors.

    It runs at the position of the last token that is kept, and its queries are those of the token behind it.
    """
    d = _stack(p)
    kept = _kept(model)
    windows = layer_windows(p, d.num_layers, period=6, size=p.integer("attention.sliding_window"))
    full = replace(rope(p, "neox", kept[False][1].head_dim, freq_factors), offset=1)
    base = p.number("rope.freq_base_swa", 10000.0)
    windowed = replace(unscaled_rope(p, "neox", kept[True][1].head_dim, base, suffix="_swa"), offset=1)
    num_heads = p.integers("attention.head_count", d.num_layers, maximum=1024)

    width = model.integer("embedding_length")
    token = g.op(Scale(math.sqrt(width)), g.op(Embed("token_embd")))
    both = g.op(Concat(1), token, g.op(HiddenBefore(width)))
    x = g.op(Linear(f"{own}nextn.pre_projection"), both)
    for layer in range(d.num_layers):
        block, has_window = f"{own}blk.{layer}", windows[layer] > 0
        rotation = windowed if has_window else full
        y = _attention(g, d, block, rotation, num_heads[layer], *kept[has_window], x)
        x = g.op(Add(), x, norm(g, d, y, f"{block}.post_attention_norm"))
        y = gated(g, norm(g, d, x, f"{block}.ffn_norm"), block, "gelu")
        x = g.op(Add(), x, norm(g, d, y, f"{block}.post_ffw_norm"))
        x = g.op(MulVector(f"{block}.layer_output_scale.weight"), x)
    x = norm(g, d, g.op(Rows(), x), f"{own}output_norm")
    g.hidden = g.op(Linear(f"{own}nextn.post_projection"), x)
    for name in (
        "masked_embd_centroids.weight",
        "masked_embd_ordering",
        "masked_embd_ordering.weight",
    ):  # for fewer logits, less exact ones
        g.leave_out(f"{own}{name}")
    return g.op(Linear(f"{own}token_embd"), g.op(SampledRows(), x))


def _stack(p: Hyperparameters) -> Stack:
    """All of its layers count as those of a prediction head."""
    return Stack(
        num_layers=p.integer("block_count", maximum=64),
        num_prediction_layers=0,
        width=p.integer("embedding_length", maximum=1 << 17),
        norm_eps=p.number("attention.layer_norm_rms_epsilon"),
        context_length=p.integer("context_length", maximum=MAX_CONTEXT),
    )


def _kept(model: Hyperparameters) -> dict[bool, tuple[int, Heads]]:
    """With a window and without: the layer whose keys and values are read, and its heads."""
    num_layers = Stack.read(model).num_layers
    windows = layer_windows(
        model, num_layers, period=6, size=model.integer("attention.sliding_window", minimum=2)
    )
    heads = layer_heads(model, windows)
    num_keeping = keeping_layers(model, num_layers, num_sharing=0)
    found = {}
    for has_window in (False, True):
        layers = [layer for layer, window in enumerate(windows) if bool(window) == has_window]
        if not layers:
            kind = "a window" if has_window else "all tokens"
            raise HyperparameterError(
                f"the model has no layer with {kind}, whose keys the drafter could read"
            )
        found[has_window] = kept_by(layers[-1], num_keeping, windows[layers[-1]]), heads[layers[-1]]
    return found


def _attention(
    g: Tracer, d: Stack, block: str, rotation: Rope, num_heads: int, layer: int, heads: Heads, x: Value
) -> Value:
    """heads: of the model's layer, of which the latest token is in no window yet."""
    q = g.op(Linear(f"{block}.attn_q"), norm(g, d, x, f"{block}.attn_norm"))
    attention = SharedAttention(
        layer=layer,
        num_heads=num_heads,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        scale=1.0,
        window=heads.window - 1 if heads.window else 0,
    )
    seen = g.op(attention, g.op(rotation, norm(g, d, q, f"{block}.attn_q_norm")))
    return g.op(Linear(f"{block}.attn_output"), seen)
