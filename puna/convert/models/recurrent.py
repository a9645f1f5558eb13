"""Families of decoders whose layers mostly keep a state of fixed size in place of keys and values."""

from __future__ import annotations

from msgspec.structs import replace

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.extras import shared_expert
from puna.convert.models.family import (
    EXPERTS,
    FEED_FORWARD,
    FUSED_EXPERTS,
    NORMED_HEADS,
    PREDICTION_HEAD,
    PROJECTIONS,
    SHARED_EXPERT,
    SIGMOID,
    Family,
    Hyperparameters,
    Split,
)
from puna.convert.models.rope import rope_parameters, rotary_dims
from puna.convert.parts import linear_attention
from puna.convert.parts.linear_attention import QKVZ
from puna.gguf.writer import array, uint32

_SECTIONS = (11, 11, 10, 0)
"""Of Qwen 3.5's heads, how many rotations are by time, height and width."""


def _qwen3next(config: Config, values: Hyperparameters) -> None:
    shared_expert(config, values)
    value_heads, value_dim = config.integer("linear_num_value_heads"), config.integer("linear_value_head_dim")
    values["ssm.conv_kernel"] = uint32(config.integer("linear_conv_kernel_dim"))
    values["ssm.state_size"] = uint32(config.integer("linear_key_head_dim"))
    values["ssm.group_count"] = uint32(config.integer("linear_num_key_heads"))
    values["ssm.time_step_rank"] = uint32(value_heads)
    values["ssm.inner_size"] = uint32(value_heads * value_dim)
    num_layers = config.integer("num_hidden_layers", maximum=1024)
    if (kinds := config.texts("layer_types", num_layers)) is not None:
        recurrent = [kind == "linear_attention" for kind in kinds]
        if (more := values.get("nextn_predict_layers")) is not None:
            recurrent += [False] * more.value
        values["attention.recurrent_layers"] = array("bool", recurrent)
    values["full_attention_interval"] = uint32(config.integer("full_attention_interval", default=4))
    values["rope.dimension_count"] = rotary_dims(config, 0.25)


def _qwen35(config: Config, values: Hyperparameters) -> None:
    _qwen3next(config, values)
    if not rope_parameters(config).has("mrope_section"):
        values["rope.dimension_sections"] = array("int32", _SECTIONS)


def _lfm2(config: Config, values: Hyperparameters) -> None:
    num_layers = config.integer("num_hidden_layers", maximum=1024)
    kinds = config.texts("layer_types", num_layers)
    if kinds is None:
        raise ConversionError("config.json: layer_types is missing")
    num_kv_heads = config.integer("num_key_value_heads", maximum=1024)
    counts = [0 if kind == "conv" else num_kv_heads for kind in kinds]
    values["attention.head_count_kv"] = array("int32", counts)
    values["shortconv.l_cache"] = uint32(config.integer("conv_L_cache"))
    values["feed_forward_length"] = uint32(_lfm2_width(config))


def _lfm2_width(config: Config) -> int:
    """Of the feed-forward layer: some configurations say it before it is shrunk and rounded up."""
    width = config.integer("block_ff_dim", "intermediate_size")
    if config.flag("block_auto_adjust_ff_dim", True):
        multiple = max(1, config.integer("block_multiple_of", default=256))
        width = int(config.number("block_ffn_dim_multiplier", default=1.0) * int(2 * width / 3))
        width = -(-width // multiple) * multiple
    return width


def _lfm2moe(config: Config, values: Hyperparameters) -> None:
    _lfm2(config, values)
    values["feed_forward_length"] = uint32(config.integer("intermediate_size"))
    values["expert_feed_forward_length"] = uint32(config.integer("moe_intermediate_size"))
    values["leading_dense_block_count"] = uint32(config.integer("num_dense_layers"))
    values["expert_gating_func"] = uint32(SIGMOID)


_LINEAR = {
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.dt_proj": "ssm_dt",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm"}
_IN_TURN: dict[str, Split] = {
    "attn_qkv": linear_attention.values_behind_keys,
    "attn_gate": linear_attention.values_alone,
    "ssm_alpha": linear_attention.row_of_each_head,
    "ssm_beta": linear_attention.row_of_each_head,
    "ssm_conv1d": linear_attention.values_behind_keys,
    "ssm_dt": linear_attention.value_of_each_head,
    "ssm_a": linear_attention.value_of_each_head,
    "ssm_out": linear_attention.columns_of_values,
}
_QWEN3_NEXT = Family(
    architecture="qwen3next",
    layer_names=PROJECTIONS
    | NORMED_HEADS
    | PREDICTION_HEAD
    | EXPERTS
    | SHARED_EXPERT
    | _NORMS
    | _LINEAR
    | {"linear_attn.in_proj_qkvz": QKVZ, "linear_attn.in_proj_ba": "ssm_ba"},
    hyperparameters=_qwen3next,
    norms_add_one=True,
    left_out=("mtp.", "model.mtp."),
    has_head_apart=True,
    parts=FUSED_EXPERTS | {QKVZ: linear_attention.queries_to_gates},
)
_QWEN35_LAYER = (
    PROJECTIONS
    | NORMED_HEADS
    | PREDICTION_HEAD
    | _NORMS
    | _LINEAR
    | {
        "linear_attn.in_proj_qkv": "attn_qkv",
        "linear_attn.in_proj_z": "attn_gate",
        "linear_attn.in_proj_a": "ssm_alpha",
        "linear_attn.in_proj_b": "ssm_beta",
    }
)
_QWEN35 = replace(
    _QWEN3_NEXT,
    architecture="qwen35",
    layer_names=_QWEN35_LAYER | FEED_FORWARD,
    hyperparameters=_qwen35,
    parts=_IN_TURN,
)
_QWEN35_MOE = replace(
    _QWEN35,
    architecture="qwen35moe",
    layer_names=_QWEN35_LAYER | EXPERTS | SHARED_EXPERT,
    parts=FUSED_EXPERTS | _IN_TURN,
)
_LFM2 = Family(
    architecture="lfm2",
    layer_names={
        "operator_norm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_output",
        "self_attn.q_layernorm": "attn_q_norm",
        "self_attn.k_layernorm": "attn_k_norm",
        "conv.conv": "shortconv.conv",
        "conv.in_proj": "shortconv.in_proj",
        "conv.out_proj": "shortconv.out_proj",
        "ffn_norm": "ffn_norm",
        "feed_forward.w1": "ffn_gate",
        "feed_forward.w2": "ffn_down",
        "feed_forward.w3": "ffn_up",
    },
    hyperparameters=_lfm2,
)

RECURRENT = {
    "LFM2ForCausalLM": _LFM2,
    "Lfm2ForCausalLM": _LFM2,
    "Lfm2MoeForCausalLM": replace(
        _LFM2,
        architecture="lfm2moe",
        layer_names={
            **_LFM2.layer_names,
            "feed_forward.gate": "ffn_gate_inp",
            "feed_forward.expert_bias": "exp_probs_b",
            "feed_forward.experts.w1": "ffn_gate_exps",
            "feed_forward.experts.w2": "ffn_down_exps",
            "feed_forward.experts.w3": "ffn_up_exps",
        },
        hyperparameters=_lfm2moe,
    ),
    "Qwen3NextForCausalLM": _QWEN3_NEXT,
    "Qwen3_5ForCausalLM": _QWEN35,
    "Qwen3_5ForConditionalGeneration": _QWEN35,
    "Qwen3_5MoeForCausalLM": _QWEN35_MOE,
    "Qwen3_5MoeForConditionalGeneration": _QWEN35_MOE,
}
"""By the class that config.json names."""
