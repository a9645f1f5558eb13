"""Qwen3-Next: as Qwen3.5 with experts, but with value heads grouped by their key heads."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Columns, Concat, Linear
from puna.models.blocks import Part, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.prediction import prediction_head
from puna.models.recurrent.gated_delta_net import DeltaNet, Projections, hybrid_mixer, with_shared_expert
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    return pre_norm_decoder(g, d, *_parts(g, p, d), ffn_norm="post_attention_norm")


def trace_prediction(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    return prediction_head(g, d, *_parts(g, p, d), ffn_norm="post_attention_norm")


def _parts(g: Tracer, p: Hyperparameters, d: Decoder) -> tuple[Part, Part]:
    net = DeltaNet.read(p)
    rotation, ratio = rope(p, "neox", d.head_dim, None), net.values_per_key

    def project(layer: int, x: Value) -> Projections:
        beta_and_decay = g.op(Linear(f"blk.{layer}.ssm_ba"), x)
        beta, decay = (g.op(Columns(begin, ratio, 2 * ratio), beta_and_decay) for begin in (0, ratio))
        return *_queries_to_gate(g, net, f"blk.{layer}", x), decay, beta

    return hybrid_mixer(g, p, d, rotation, project, grouped=True), with_shared_expert(g, p)


def _queries_to_gate(g: Tracer, net: DeltaNet, block: str, x: Value) -> tuple[Value, Value]:
    """(q, k and v; the gate), which older files have in one tensor, by key head."""
    if f"{block}.ssm_in.weight" not in g.shapes:
        return g.op(Linear(f"{block}.attn_qkv"), x), g.op(Linear(f"{block}.attn_gate"), x)
    keys, values = net.head_dim, net.values_per_key * net.head_dim
    mixed, period = g.op(Linear(f"{block}.ssm_in"), x), 2 * (keys + values)
    parts = [(0, keys), (keys, keys), (2 * keys, values), (2 * keys + values, values)]
    q, k, v, gate = (g.op(Columns(begin, size, period), mixed) for begin, size in parts)
    return g.op(Concat(1), g.op(Concat(1), q, k), v), gate
