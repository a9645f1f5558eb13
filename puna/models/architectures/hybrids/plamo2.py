"""PLaMo 2: scans with a step of lower rank, and attention in some layers; norms on both sides."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Columns, Glu, HeadLinear, Linear, SelectiveScan, ShortConv
from puna.models.architectures.post_norm.plamo3 import fused_normed_qkv, plamo_decoder
from puna.models.blocks import bare_norm, causal_attention
from puna.models.decoder import Decoder, Stack
from puna.models.hyperparameters import HyperparameterError, Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    layers = Decoder.read_layers(p)
    rotation = rope(p, "neox", layers[0].head_dim, None)

    def mixer(layer: int, x: Value) -> Value:
        d = layers[layer]
        if d.num_kv_heads == 0:
            return _scan(g, p, d, layer, x)
        return causal_attention(g, d, layer, rotation, fused_normed_qkv(g, d, x, layer))

    return plamo_decoder(g, layers[0], mixer)


def _scan(g: Tracer, p: Hyperparameters, d: Stack, layer: int, x: Value) -> Value:
    block, state_dim = f"blk.{layer}", p.integer("ssm.state_size", maximum=1 << 16)
    width, heads = p.integer("ssm.inner_size"), p.integer("ssm.time_step_rank", maximum=1 << 16)
    if width % heads:
        raise HyperparameterError(f"metadata {p.key('ssm.inner_size')}: {width} for {heads} heads")
    dim, rank = width // heads, max(64, d.width // 16)
    mixed = g.op(Linear(f"{block}.ssm_in"), x)
    gate, scanned = (g.op(Columns(begin, dim, 2 * dim), mixed) for begin in (0, dim))
    scanned = g.op(ShortConv(layer, f"{block}.ssm_conv1d", "silu"), scanned)
    parts = g.op(Linear(f"{block}.ssm_x"), scanned)
    cuts = ((0, state_dim, "b"), (state_dim, state_dim, "c"), (2 * state_dim, rank, "dt"))
    b, c, dt = (
        bare_norm(g, d, g.op(Columns(begin, size, 2 * state_dim + rank), parts), f"{block}.ssm_{name}_norm")
        for begin, size, name in cuts
    )
    dt = g.op(HeadLinear(f"{block}.ssm_dt", 1), dt)  # the scan adds the bias
    op = SelectiveScan(
        layer=layer, name=f"{block}.ssm", num_heads=heads, head_dim=dim, num_groups=1, state_dim=state_dim
    )
    return g.op(Linear(f"{block}.ssm_out"), g.op(Glu("silu"), gate, g.op(op, scanned, b, c, dt)))
