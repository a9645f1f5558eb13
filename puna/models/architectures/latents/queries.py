"""Queries of models with latents."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Linear
from puna.models.blocks import norm
from puna.models.decoder import Decoder


def queries(g: Tracer, d: Decoder, block: str, x: Value) -> Value:
    """In the smaller models without a product of lower rank."""
    if f"{block}.attn_q_a.weight" not in g.shapes:
        return g.op(Linear(f"{block}.attn_q"), x)
    low = norm(g, d, g.op(Linear(f"{block}.attn_q_a"), x), f"{block}.attn_q_a_norm")
    return g.op(Linear(f"{block}.attn_q_b"), low)
