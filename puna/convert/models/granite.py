"""Granite: sums with fixed multipliers; experts that lie in one tensor, beside one that all tokens share."""

from __future__ import annotations

from msgspec.structs import replace

from puna.convert.models.config import Config
from puna.convert.models.extras import llama
from puna.convert.models.family import FEED_FORWARD, PRE_NORMS, PROJECTIONS, Family, Hyperparameters
from puna.convert.parts.experts import (
    DOWN_SHARED,
    GATE_AND_UP,
    GATE_AND_UP_SHARED,
    gate_and_up,
    shared_down,
    shared_gate_and_up,
)
from puna.gguf.writer import float32, uint32


def _granite(config: Config, values: Hyperparameters) -> None:
    llama(config, values)
    for name, key in (
        ("attention_multiplier", "attention.scale"),
        ("embedding_multiplier", "embedding_scale"),
        ("residual_multiplier", "residual_scale"),
        ("logits_scaling", "logit_scale"),
    ):
        if factor := config.number(name, default=0.0):
            values[key] = float32(factor)


def _granitemoe(config: Config, values: Hyperparameters) -> None:
    _granite(config, values)
    if size := config.integer("shared_intermediate_size", default=0):
        values["expert_shared_feed_forward_length"] = uint32(size)


_GRANITE = Family(
    architecture="granite",
    layer_names=PROJECTIONS | PRE_NORMS | FEED_FORWARD,
    hyperparameters=_granite,
    pairs_halves=True,
)
_GRANITE_MOE = replace(
    _GRANITE,
    architecture="granitemoe",
    layer_names=PROJECTIONS
    | PRE_NORMS
    | {
        "block_sparse_moe.router.layer": "ffn_gate_inp",
        "block_sparse_moe.input_linear": GATE_AND_UP,
        "block_sparse_moe.output_linear": "ffn_down_exps",
        "shared_mlp.input_linear": GATE_AND_UP_SHARED,
        "shared_mlp.output_linear": DOWN_SHARED,
    },
    hyperparameters=_granitemoe,
    parts={
        GATE_AND_UP: gate_and_up,
        GATE_AND_UP_SHARED: shared_gate_and_up,
        DOWN_SHARED: shared_down,
    },
)

GRANITE = {
    "GraniteForCausalLM": _GRANITE,
    "GraniteMoeForCausalLM": _GRANITE_MOE,
    "GraniteMoeSharedForCausalLM": _GRANITE_MOE,
}
"""By the class that config.json names."""
