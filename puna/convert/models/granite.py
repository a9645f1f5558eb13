"""Granite: sums with fixed multipliers; experts that lie in one tensor, beside one that all tokens share; in
hybrids most layers are Mamba-2.
"""

from __future__ import annotations

from msgspec.structs import replace

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.extras import llama
from puna.convert.models.family import FEED_FORWARD, PRE_NORMS, PROJECTIONS, Family, Hyperparameters
from puna.convert.models.sizes import MAX_HEADS, num_experts, num_layers, width
from puna.convert.parts.experts import (
    DOWN_SHARED,
    GATE_AND_UP,
    GATE_AND_UP_SHARED,
    gate_and_up,
    shared_down,
    shared_gate_and_up,
)
from puna.convert.parts.naming import check_shape
from puna.convert.planned_tensor import PlannedTensor
from puna.convert.sources.values import Rows
from puna.gguf.writer import array, boolean, float32, uint32


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


def _hybrid(config: Config, values: Hyperparameters) -> None:
    _granitemoe(config, values)
    attends = _attending_layers(config)
    heads = config.integer("num_key_value_heads", maximum=MAX_HEADS)
    values["attention.head_count_kv"] = array("int32", [heads if attending else 0 for attending in attends])
    values["rope.scaling.finetuned"] = boolean(all(attends))
    if not all(attends):
        values["context_length"] = uint32(_CONTEXT_WITHOUT_POSITIONS)
    for key, name in _MAMBA.items():
        values[key] = uint32(config.integer(name))
    values["ssm.inner_size"] = uint32(_inner_size(config))


def _attending_layers(config: Config) -> list[bool]:
    kinds = config.texts("layer_types", num_layers(config))
    if kinds is None:
        raise ConversionError("config.json: layer_types is missing")
    return [kind == "attention" for kind in kinds]


def _inner_size(config: Config) -> int:
    return config.integer("mamba_expand") * width(config)


def _without_mamba(config: Config) -> Family | None:
    if not all(_attending_layers(config)):
        return None
    return replace(_HYBRID, architecture="granitemoe" if num_experts(config) else "granite")


def _value_of_each_head(name: str, rows: Rows, _: Config) -> list[PlannedTensor]:
    """A vector, a row of one value for each head in GGUF."""
    shape = (*rows.tensor.shape, 1)
    return [PlannedTensor(name=name, shape=shape, dtype=rows.tensor.dtype, rows=(rows,))]


def _norm_of_groups(name: str, rows: Rows, config: Config) -> list[PlannedTensor]:
    """A vector, a row for each group in GGUF."""
    groups, size = config.integer("mamba_n_groups"), _inner_size(config)
    check_shape(rows.tensor, rows.tensor.shape == (size,) and groups > 0 and size % groups == 0)
    shape = (groups, size // groups)
    return [PlannedTensor(name=name, shape=shape, dtype=rows.tensor.dtype, rows=(rows,))]


_CONTEXT_WITHOUT_POSITIONS = 1 << 20
_MAMBA = {
    "ssm.conv_kernel": "mamba_d_conv",
    "ssm.state_size": "mamba_d_state",
    "ssm.group_count": "mamba_n_groups",
    "ssm.time_step_rank": "mamba_n_heads",
}
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

_HYBRID = replace(
    _GRANITE_MOE,
    architecture="granitehybrid",
    layer_names={
        **_GRANITE_MOE.layer_names,
        "mamba.A_log": "ssm_a",
        "mamba.D": "ssm_d",
        "mamba.conv1d": "ssm_conv1d",
        "mamba.dt_proj": "ssm_dt",
        "mamba.in_proj": "ssm_in",
        "mamba.norm": "ssm_norm",
        "mamba.out_proj": "ssm_out",
    },
    hyperparameters=_hybrid,
    parts={
        **_GRANITE_MOE.parts,
        "ssm_a": _value_of_each_head,
        "ssm_d": _value_of_each_head,
        "ssm_norm": _norm_of_groups,
    },
    variant=_without_mamba,
)

GRANITE = {
    "GraniteForCausalLM": _GRANITE,
    "GraniteMoeForCausalLM": _GRANITE_MOE,
    "GraniteMoeHybridForCausalLM": _HYBRID,
    "GraniteMoeSharedForCausalLM": _GRANITE_MOE,
}
"""By the class that config.json names."""
