"""Kimi Linear: most layers are delta nets whose states decay row by row, the others attend to latents."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Activation, AddVector, GatedDeltaNet, L2Norm, Linear, Mul, MulVector, ShortConv
from puna.models.architectures.latents.absorbed import Latents, latent_attention
from puna.models.blocks import norm, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, latents = Decoder.read(p), Latents.read(p, rotates=False)
    dim = p.integer("kda.head_dim", maximum=512)

    def mixer(layer: int, x: Value) -> Value:
        if d.has_attention[layer]:
            return latent_attention(g, d, latents, layer, x)
        return _delta_attention(g, d, dim, layer, x)

    return pre_norm_decoder(g, d, mixer, mixture(g, p, scores="sigmoid", normalized=True))


def _delta_attention(g: Tracer, d: Decoder, dim: int, layer: int, x: Value) -> Value:
    """Kimi Delta Attention (Moonshot AI, 2025); dim: of a head."""
    block, heads = f"blk.{layer}", d.num_heads
    q, k, v = (
        g.op(ShortConv(layer, f"{block}.ssm_conv1d_{part}", "silu"), g.op(Linear(f"{block}.attn_{part}"), x))
        for part in "qkv"
    )
    q, k = (g.op(L2Norm(dim, d.norm_eps), y) for y in (q, k))
    decay = g.op(AddVector(f"{block}.ssm_dt.bias"), _narrow(g, block, "f", x))
    decay = g.op(MulVector(f"{block}.ssm_a"), g.op(Activation("softplus"), decay))
    op = GatedDeltaNet(
        layer=layer,
        num_key_heads=heads,
        num_value_heads=heads,
        key_dim=dim,
        value_dim=dim,
        scale=dim**-0.5,
        grouped=True,
        decays_rows=True,
    )
    y = g.op(op, q, k, v, decay, g.op(Activation("sigmoid"), g.op(Linear(f"{block}.ssm_beta"), x)))
    gate = g.op(Activation("sigmoid"), _narrow(g, block, "g", x))
    y = g.op(Mul(), norm(g, d, y, f"{block}.ssm_norm"), gate)
    return g.op(Linear(f"{block}.attn_output"), y)


def _narrow(g: Tracer, block: str, name: str, x: Value) -> Value:
    """A product of two matrices of lower rank."""
    return g.op(Linear(f"{block}.ssm_{name}_b"), g.op(Linear(f"{block}.ssm_{name}_a"), x))
