"""Families of decoders with experts besides those that each token shares."""

from __future__ import annotations

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.extras import shared_expert
from puna.convert.models.family import (
    EXPERTS,
    FEED_FORWARD,
    NORMED_HEADS,
    PRE_NORMS,
    PROJECTIONS,
    SHARED_EXPERT,
    Family,
    Hyperparameters,
)
from puna.convert.models.rope import rope_parameters, rotary_dims
from puna.gguf.writer import array, boolean, float32, uint32

_COUNTS = {
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "leading_dense_block_count": ("first_k_dense_replace", "moe_layer_start_index"),
    "expert_shared_count": ("n_shared_experts", "moe_num_shared_experts"),
    "expert_group_count": ("n_group",),
    "expert_group_used_count": ("topk_group",),
    "interleave_moe_layer_step": ("moe_layer_interval",),
}
"""By GGUF's key, the names that configurations have for it, if they say it."""
_GATING = {"softmax": 1, "sigmoid": 2}
_SHARED = {
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
_CHOICE_BIAS = {"mlp.gate.e_score_correction": "exp_probs_b"}
_LAYER = PROJECTIONS | NORMED_HEADS | EXPERTS | FEED_FORWARD | _SHARED | _CHOICE_BIAS
_GLM_END = "<|endoftext|>"
GLM_SPECIAL = {"bos": _GLM_END, "eos": _GLM_END, "unk": _GLM_END, "eot": "<|user|>"}


def _mixture(config: Config, values: Hyperparameters) -> None:
    for key, names in _COUNTS.items():
        if any(map(config.has, names)):
            values[key] = uint32(config.integer(*names))
    if config.has("routed_scaling_factor"):
        values["expert_weights_scale"] = float32(config.number("routed_scaling_factor"))
    if config.has("norm_topk_prob"):
        values["expert_weights_norm"] = boolean(config.flag("norm_topk_prob"))
    if config.has("scoring_func"):
        kind = config.text("scoring_func")
        if kind not in _GATING:
            raise ConversionError(f"config.json: scoring_func {kind[:40]!r} is not known")
        values["expert_gating_func"] = uint32(_GATING[kind])


def _glm4moe(config: Config, values: Hyperparameters) -> None:
    _mixture(config, values)
    values["rope.dimension_count"] = rotary_dims(config, 0.5)
    values["expert_gating_func"] = uint32(_GATING["sigmoid"])


def _gpt_oss(config: Config, values: Hyperparameters) -> None:
    values["attention.sliding_window"] = uint32(config.integer("sliding_window"))
    values["expert_feed_forward_length"] = values["feed_forward_length"]


def _deepseek2(config: Config, values: Hyperparameters) -> None:
    _mixture(config, values)
    rank, rotated = config.integer("kv_lora_rank"), config.integer("qk_rope_head_dim")
    if config.has("q_lora_rank"):
        values["attention.q_lora_rank"] = uint32(config.integer("q_lora_rank"))
    values["attention.head_count_kv"] = uint32(1)
    values["attention.kv_lora_rank"] = values["attention.value_length"] = uint32(rank)
    values["attention.key_length"] = uint32(rank + rotated)
    values["attention.key_length_mla"] = uint32(config.integer("qk_nope_head_dim") + rotated)
    values["attention.value_length_mla"] = uint32(config.integer("v_head_dim"))
    values["rope.dimension_count"] = uint32(rotated)
    if not config.flag("norm_topk_prob"):
        values.pop("expert_weights_norm", None)
    if (scale := rope_parameters(config).number("mscale_all_dim", default=0.0)) > 0:
        values["rope.scaling.yarn_log_multiplier"] = float32(0.1 * scale)


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
        values["attention.recurrent_layers"] = array("bool", recurrent)
    values["full_attention_interval"] = uint32(config.integer("full_attention_interval", default=4))
    values["rope.dimension_count"] = rotary_dims(config, 0.25)


_DEEPSEEK2 = Family(
    architecture="deepseek2",
    layer_names=PRE_NORMS
    | EXPERTS
    | FEED_FORWARD
    | _SHARED
    | _CHOICE_BIAS
    | {
        "self_attn.q_proj": "attn_q",
        "self_attn.q_a_proj": "attn_q_a",
        "self_attn.q_a_layernorm": "attn_q_a_norm",
        "self_attn.q_b_proj": "attn_q_b",
        "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
        "self_attn.kv_a_layernorm": "attn_kv_a_norm",
        "self_attn.kv_b_proj": "attn_kv_b",
        "self_attn.o_proj": "attn_output",
    },
    hyperparameters=_deepseek2,
    has_more_layers=True,
)

MIXTURES = {
    "Dots1ForCausalLM": Family(
        architecture="dots1", layer_names=_LAYER | PRE_NORMS, hyperparameters=_mixture
    ),
    "GptOssForCausalLM": Family(
        architecture="gpt-oss",
        layer_names=PROJECTIONS
        | {
            "self_attn.sinks": "attn_sinks",
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "post_attention_norm",
            "mlp.router": "ffn_gate_inp",
            "mlp.experts.gate_up_proj": "ffn_gate_up_exps",
            "mlp.experts.gate_up_proj_blocks": "ffn_gate_up_exps",
            "mlp.experts.down_proj": "ffn_down_exps",
            "mlp.experts.down_proj_blocks": "ffn_down_exps",
        },
        hyperparameters=_gpt_oss,
        interleaves_gate_and_up=True,
    ),
    "DeepseekV2ForCausalLM": _DEEPSEEK2,
    "DeepseekV3ForCausalLM": _DEEPSEEK2,
    "Qwen3NextForCausalLM": Family(
        architecture="qwen3next",
        layer_names=PROJECTIONS
        | NORMED_HEADS
        | EXPERTS
        | SHARED_EXPERT
        | {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "post_attention_norm",
            "linear_attn.in_proj_qkvz": "ssm_in",
            "linear_attn.in_proj_ba": "ssm_ba",
            "linear_attn.conv1d": "ssm_conv1d",
            "linear_attn.dt_proj": "ssm_dt",
            "linear_attn.A_log": "ssm_a",
            "linear_attn.norm": "ssm_norm",
            "linear_attn.out_proj": "ssm_out",
        },
        hyperparameters=_qwen3next,
        norms_add_one=True,
        left_out=("mtp.",),
    ),
    "Glm4MoeForCausalLM": Family(
        architecture="glm4moe",
        layer_names=_LAYER
        | {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm"},
        hyperparameters=_glm4moe,
        special_tokens={"bos": "[gMASK]", "unk": _GLM_END, "eot": "<|user|>", "eom": "<|observation|>"},
        has_more_layers=True,
    ),
}
"""By the class that config.json names."""
