"""Feed-forward parts of which some layers have experts."""

from __future__ import annotations

from dataclasses import replace

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Moe
from puna.models.blocks import Part, experts, gated, gated_as_one
from puna.models.hyperparameters import HyperparameterError, Hyperparameters

_LEAST_LIMIT = 1e-6  # as llama.cpp has it


def mixture(
    g: Tracer, p: Hyperparameters, *, scores: str, normalized: bool, weighs_input: bool = False
) -> Part:
    """(layer, normalised x) -> what experts give, and those that all tokens share; else a gated part.

    scores, normalized: of the Moe, where the file does not say. weighs_input: of the Moe.
    """
    if p.integer("expert_count", 0, minimum=0) == 0:
        return lambda layer, x: gated(g, x, f"blk.{layer}", "silu")
    num_dense = p.integer("leading_dense_block_count", 0, minimum=0)
    step = p.integer("interleave_moe_layer_step", 1)
    shares = p.integer("expert_shared_count", 0, minimum=0) > 0

    def feed_forward(layer: int, x: Value) -> Value:
        block = f"blk.{layer}"
        if layer < num_dense or (layer + 1) % step:
            return gated(g, x, block, "silu")
        of_layer = moe(p, block, scores=scores, normalized=normalized)
        y = experts(g, x, replace(of_layer, weighs_input=weighs_input))
        if not shares and f"{block}.ffn_up_shexp.weight" not in g.shapes:
            return y
        shared = gated if f"{block}.ffn_gate_shexp.weight" in g.shapes else gated_as_one
        return g.op(Add(), y, shared(g, x, block, "silu", suffix="_shexp"))

    return feed_forward


def moe(p: Hyperparameters, block: str, *, scores: str, normalized: bool, num_used: int | None = None) -> Moe:
    """As the file describes it; scores, normalized: where it does not. num_used: where layers differ."""
    return Moe(
        name=block,
        num_used=p.integer("expert_used_count") if num_used is None else num_used,
        scores=_scores(p, scores),
        normalized=p.flag("expert_weights_norm", normalized),
        scale=p.multiplier("expert_weights_scale"),
        activation="silu",
        num_groups=p.integer("expert_group_count", 1, minimum=0) or 1,
        num_groups_used=p.integer("expert_group_used_count", 1, minimum=0) or 1,
    )


def limits(p: Hyperparameters, name: str, num_layers: int) -> list[float]:
    """What gates and what they multiply are kept within in each layer; 0: nothing."""
    found = p.numbers(name, num_layers)
    found = [p.number(name, 0.0)] * num_layers if found is None else found
    return [limit if limit > _LEAST_LIMIT else 0.0 for limit in found]


def _scores(p: Hyperparameters, default: str) -> str:
    """As llama.cpp numbers them."""
    kind = p.integer("expert_gating_func", 0, minimum=0)
    if kind > 3:
        raise HyperparameterError(f"metadata {p.key('expert_gating_func')} is {kind}, not 1, 2 or 3")
    return (default, "softmax", "sigmoid", "chosen_softmax")[kind]
