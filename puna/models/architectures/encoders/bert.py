"""BERT and its kin: norms behind each half of a layer. They differ in how they know where tokens are.

RoBERTa and XLM-RoBERTa are BERT, and so are their descendants for retrieval: MiniLM, E5, BGE, GTE.
"""

from __future__ import annotations

from puna.graph import GraphError, Tracer, Value
from puna.graph.ops import Add, AddFirstRow, Embed, EmbedPosition, Moe, Rope
from puna.models.blocks import experts, fused_qkv, gated, gated_as_one, layer_norm, two_layers
from puna.models.decoder import Decoder
from puna.models.encoder import Pooled, encoder_attention
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope

_LARGEST_SLOPE = 8.0


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d, pooled = Decoder.read(p), Pooled(g, p)
    rotation = _rotation(g, p, d, freq_factors)
    alibi = 0.0 if rotation is not None or _has_positions(g) else _LARGEST_SLOPE
    x = _embeddings(g, d)
    for layer in range(d.num_layers):
        block = f"blk.{layer}"
        q_k_v = _qkv(g, d, x, layer)
        y = encoder_attention(g, d, f"{block}.attn_output", rotation, q_k_v, alibi=alibi)
        if layer == d.num_layers - 1:
            x, y = pooled.ahead(x, y)
        y = layer_norm(g, d, g.op(Add(), y, x), f"{block}.attn_output_norm")
        if f"{block}.attn_norm_2.weight" in g.shapes:
            y = layer_norm(g, d, g.op(Add(), y, x), f"{block}.attn_norm_2")
        fed = _feed_forward(g, p, layer, y)
        x = layer_norm(g, d, g.op(Add(), fed, y), f"{block}.layer_output_norm")
    return pooled.finish(x)


def _has_positions(g: Tracer) -> bool:
    return "position_embd.weight" in g.shapes


def _rotation(g: Tracer, p: Hyperparameters, d: Decoder, freq_factors: FreqFactors | None) -> Rope | None:
    """Of Nomic's and of Jina's third; Jina's second has slopes in place of it."""
    if _has_positions(g) or p.architecture == "jina-bert-v2":
        return None
    return rope(p, "neox", d.head_dim, freq_factors)


def _embeddings(g: Tracer, d: Decoder) -> Value:
    """All tokens are of the first type."""
    x = g.op(Embed("token_embd"))
    if "token_types.weight" in g.shapes:
        x = g.op(AddFirstRow("token_types.weight"), x)
    if _has_positions(g):
        _, num_positions = g.shapes.matrix("position_embd.weight")
        if num_positions < d.context_length:
            raise GraphError(
                f"tensor position_embd.weight is for {num_positions} positions, the context is of "
                f"{d.context_length}"
            )
        x = g.op(Add(), x, g.op(EmbedPosition("position_embd")))
    return layer_norm(g, d, x, "token_embd_norm")


def _qkv(g: Tracer, d: Decoder, x: Value, layer: int) -> tuple[Value, Value, Value]:
    """With q and k normalised over all their heads where the file has the norms."""
    q, k, v = fused_qkv(g, d, x, layer)
    if f"blk.{layer}.attn_q_norm.weight" in g.shapes:
        q = layer_norm(g, d, q, f"blk.{layer}.attn_q_norm")
    if f"blk.{layer}.attn_k_norm.weight" in g.shapes:
        k = layer_norm(g, d, k, f"blk.{layer}.attn_k_norm")
    return q, k, v


def _feed_forward(g: Tracer, p: Hyperparameters, layer: int, x: Value) -> Value:
    """With experts, gated, or neither. Of Jina's second, gate and up may be one matrix."""
    block = f"blk.{layer}"
    if f"{block}.ffn_gate_inp.weight" in g.shapes:
        return experts(g, x, _moe(p, block))
    if f"{block}.ffn_gate.weight" in g.shapes:
        return gated(g, x, block, "gelu" if p.architecture == "jina-bert-v2" else "silu")
    up, down = g.shapes.matrix(f"{block}.ffn_up.weight"), g.shapes.matrix(f"{block}.ffn_down.weight")
    if up[1] == 2 * down[0]:
        return gated_as_one(g, x, block, "gelu")
    return two_layers(g, x, block, "gelu")


def _moe(p: Hyperparameters, block: str) -> Moe:
    return Moe(
        name=block,
        num_used=p.integer("expert_used_count"),
        scores="softmax",
        normalized=False,
        scale=p.multiplier("expert_weights_scale"),
        gated=False,
        activation="gelu",
    )
