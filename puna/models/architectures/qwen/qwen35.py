"""Qwen3.5: gated delta nets, and attention in every fourth layer."""

from __future__ import annotations

from collections.abc import Callable

from puna.graph import Tracer, Value
from puna.graph.ops import Linear, Rope
from puna.models.blocks import pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import HyperparameterError, Hyperparameters
from puna.models.prediction import prediction_head
from puna.models.recurrent.gated_delta_net import Projections, hybrid_mixer
from puna.models.rope import FreqFactors, rope

_SECTIONS = "rope.dimension_sections"


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    return pre_norm_decoder(g, d, qwen35_mixer(g, p, d), ffn_norm="post_attention_norm")


def trace_prediction(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    return prediction_head(g, d, qwen35_mixer(g, p, d), ffn_norm="post_attention_norm")


def qwen35_mixer(g: Tracer, p: Hyperparameters, d: Decoder) -> Callable[[int, Value], Value]:
    def project(layer: int, x: Value) -> Projections:
        names = ("attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta")
        mixed, gate, decay, beta = (g.op(Linear(f"blk.{layer}.{name}"), x) for name in names)
        return mixed, gate, decay, beta

    return hybrid_mixer(g, p, d, _rotation(p, d), project, grouped=False)


def _rotation(p: Hyperparameters, d: Decoder) -> Rope:
    """Dimensions take turns in a picture's time, height and width, which are all a text's position.

    Raises HyperparameterError if some would have none of them.
    """
    rotation = rope(p, "neox", d.head_dim, None)
    sections = p.integers(_SECTIONS, 4, maximum=d.head_dim)
    for i in range(len(rotation.inv_freq)):
        turn, axis = divmod(i % max(sum(sections), 1), 3)
        if turn >= sections[axis]:
            raise HyperparameterError(f"metadata {p.key(_SECTIONS)} leaves dimensions without a position")
    return rotation
