"""Heads that predict the token after next (MTP; DeepSeek-AI, 2024, section 2.2).

A head is a layer of the model's kind behind its last one. It reads the hidden state of a token and the token
after it; what it makes of both it can read in the place of the next hidden state, and so go on.
"""

from __future__ import annotations

from puna.graph import Shapes, Tracer, Value
from puna.graph.ops import Add, Concat, Embed, HiddenBefore, Linear, Rows, SampledRows
from puna.models.blocks import Part, gated, logits, norm
from puna.models.decoder import Decoder, Stack


def prediction_head(
    g: Tracer, d: Decoder, mixer: Part, feed_forward: Part | None = None, *, ffn_norm: str = "ffn_norm"
) -> Value:
    """Logits of the first head. The parts are those of pre_norm_decoder().

    Token t is at its own position, with the hidden state of token t - 1. The file may have embeddings, a last
    norm and an output matrix of the head's own.
    """
    layer, block = d.num_layers, f"blk.{d.num_layers}"
    own = f"{block}.nextn"
    embeddings = _first_of(g, f"{own}.embed_tokens", "token_embd")
    token = norm(g, d, g.op(Embed(embeddings)), f"{own}.enorm")
    hidden = norm(g, d, g.op(HiddenBefore(d.width)), f"{own}.hnorm")
    x = g.op(Linear(f"{own}.eh_proj"), g.op(Concat(1), token, hidden))
    x = g.op(Add(), x, mixer(layer, norm(g, d, x, f"{block}.attn_norm")))
    x = g.op(Rows(), x)
    y = norm(g, d, x, f"{block}.{ffn_norm}")
    x = g.op(Add(), x, gated(g, y, block, "silu") if feed_forward is None else feed_forward(layer, y))
    x = norm(g, d, x, _first_of(g, f"{own}.shared_head_norm", "output_norm"))
    if f"{own}.shared_head_head.weight" in g.shapes:
        g.hidden = x
        return g.op(Linear(f"{own}.shared_head_head"), g.op(SampledRows(), x))
    return logits(g, x)


def has_prediction_head(shapes: Shapes, d: Stack) -> bool:
    """Some files say that they have one and do not."""
    return d.num_prediction_layers > 0 and f"blk.{d.num_layers}.nextn.eh_proj.weight" in shapes


def _first_of(g: Tracer, own: str, other: str) -> str:
    return own if f"{own}.weight" in g.shapes else other
