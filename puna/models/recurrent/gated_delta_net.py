"""The layers of Qwen's hybrids: most are gated delta nets, every few are attention whose output is gated."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from puna.graph import Tracer, Value
from puna.graph.ops import (
    Activation,
    Add,
    AddVector,
    Columns,
    GatedDeltaNet,
    Glu,
    L2Norm,
    Linear,
    Moe,
    Mul,
    MulVector,
    Rope,
    ShortConv,
)
from puna.models.blocks import causal_attention, experts, gated, norm
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters

Projections = tuple[Value, Value, Value, Value]
"""(q, k and v in one value, the gate of the output, decay, beta), each before what is done to it."""


class DeltaNet(msgspec.Struct, frozen=True):
    """Sizes of a gated delta net (Yang et al., 2024), whose keys and values are equally wide."""

    num_key_heads: int
    num_value_heads: int
    head_dim: int

    @property
    def values_per_key(self) -> int:
        return self.num_value_heads // self.num_key_heads

    @classmethod
    def read(cls, p: Hyperparameters) -> DeltaNet:
        """Heads that cannot be shared out are left to the op, which refuses them."""
        return cls(
            num_key_heads=p.integer("ssm.group_count", maximum=1024),
            num_value_heads=p.integer("ssm.time_step_rank", maximum=1024),
            head_dim=p.integer("ssm.state_size", maximum=1024),
        )


def attention_layers(p: Hyperparameters, d: Decoder) -> list[bool]:
    """For each layer, whether it is attention: the last of every few, or as the file says; in prediction
    heads always.
    """
    of_heads = [True] * d.num_prediction_layers
    recurrent = p.flags("attention.recurrent_layers", d.num_blocks)
    if recurrent is not None:
        return [not flag for flag in recurrent[: d.num_layers]] + of_heads
    interval = p.integer("full_attention_interval", 4)
    return [(layer + 1) % interval == 0 for layer in range(d.num_layers)] + of_heads


def hybrid_mixer(
    g: Tracer,
    p: Hyperparameters,
    d: Decoder,
    rotation: Rope,
    project: Callable[[int, Value], Projections],
    *,
    grouped: bool,
) -> Callable[[int, Value], Value]:
    """(layer, normalised x) -> what the layer's attention or delta net adds.

    project: (layer, normalised x) -> what a delta net is made of. grouped: as in GatedDeltaNet.
    """
    net, has_attention = DeltaNet.read(p), attention_layers(p, d)

    def mixer(layer: int, x: Value) -> Value:
        if has_attention[layer]:
            return gated_attention(g, d, layer, rotation, x)
        return delta_net(g, d, net, layer, project(layer, x), grouped=grouped)

    return mixer


def gated_attention(g: Tracer, d: Decoder, layer: int, rotation: Rope, x: Value) -> Value:
    """Each head's query comes with a gate."""
    block, dim = f"blk.{layer}", d.head_dim
    q_and_gate, k, v = (g.op(Linear(f"{block}.attn_{part}"), x) for part in "qkv")
    q, gate = (g.op(Columns(begin, dim, 2 * dim), q_and_gate) for begin in (0, dim))
    q, k = norm(g, d, q, f"{block}.attn_q_norm"), norm(g, d, k, f"{block}.attn_k_norm")
    return causal_attention(g, d, layer, rotation, (q, k, v), gate=gate)


def delta_net(
    g: Tracer, d: Decoder, net: DeltaNet, layer: int, projections: Projections, *, grouped: bool
) -> Value:
    block, (mixed, gate, decay, beta) = f"blk.{layer}", projections
    keys, values = net.num_key_heads * net.head_dim, net.num_value_heads * net.head_dim
    mixed = g.op(ShortConv(layer, f"{block}.ssm_conv1d", "silu"), mixed)
    parts = [(0, keys), (keys, keys), (2 * keys, values)]
    q, k, v = (g.op(Columns(begin, size, 2 * keys + values), mixed) for begin, size in parts)
    q, k = (g.op(L2Norm(net.head_dim, d.norm_eps), y) for y in (q, k))
    decay = g.op(Activation("softplus"), g.op(AddVector(f"{block}.ssm_dt.bias"), decay))
    decay = g.op(MulVector(f"{block}.ssm_a"), decay)
    op = GatedDeltaNet(
        layer=layer,
        num_key_heads=net.num_key_heads,
        num_value_heads=net.num_value_heads,
        key_dim=net.head_dim,
        value_dim=net.head_dim,
        scale=net.head_dim**-0.5,
        grouped=grouped,
    )
    y = g.op(op, q, k, v, decay, g.op(Activation("sigmoid"), beta))
    y = g.op(Glu("silu"), gate, norm(g, d, y, f"{block}.ssm_norm"))
    return g.op(Linear(f"{block}.ssm_out"), y)


def with_shared_expert(
    g: Tracer, p: Hyperparameters, *, normalises: bool = True
) -> Callable[[int, Value], Value]:
    """(layer, normalised x) -> what experts give, and one whose share each token sets.

    normalises: whether the shares of the experts that are chosen become 1 together.
    """
    num_used, scale = p.integer("expert_used_count"), p.multiplier("expert_weights_scale")

    def feed_forward(layer: int, x: Value) -> Value:
        block = f"blk.{layer}"
        share = g.op(Activation("sigmoid"), g.op(Linear(f"{block}.ffn_gate_inp_shexp"), x))
        shared = g.op(Mul(), gated(g, x, block, "silu", suffix="_shexp"), share)
        return g.op(Add(), experts(g, x, Moe(block, num_used, "softmax", normalises, scale, "silu")), shared)

    return feed_forward
