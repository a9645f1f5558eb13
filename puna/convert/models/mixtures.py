"""Families of decoders with experts besides those that each token shares."""

from __future__ import annotations

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.family import (
    EXPERTS,
    FEED_FORWARD,
    FUSED_EXPERTS,
    NORMED_HEADS,
    PRE_NORMS,
    PREDICTION_HEAD,
    PROJECTIONS,
    SIGMOID,
    SOFTMAX,
    Family,
    Hyperparameters,
)
from puna.convert.models.rope import alpha_values, rope_parameters, rotary_dims
from puna.convert.models.sizes import num_experts
from puna.convert.parts.experts import GATE_AND_UP, interleaved_gate_and_up
from puna.convert.parts.heads import LATENT, keys_and_values
from puna.gguf.writer import boolean, float32, uint32

_COUNTS = {
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "leading_dense_block_count": ("first_k_dense_replace", "moe_layer_start_index"),
    "expert_shared_count": ("n_shared_experts", "moe_num_shared_experts"),
    "expert_group_count": ("n_group",),
    "expert_group_used_count": ("topk_group",),
    "interleave_moe_layer_step": ("moe_layer_interval",),
}
"""By GGUF's key, the names that configurations have for it, if they say it."""
_GATING = {"softmax": SOFTMAX, "sigmoid": SIGMOID}
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
    values["expert_gating_func"] = uint32(SIGMOID)


def _gpt_oss(config: Config, values: Hyperparameters) -> None:
    values["attention.sliding_window"] = uint32(config.integer("sliding_window"))
    values["expert_feed_forward_length"] = values["feed_forward_length"]


def _ernie(config: Config, values: Hyperparameters) -> None:
    _mixture(config, values)
    if config.integer("moe_num_shared_experts", default=0):
        size = config.integer("intermediate_size") // max(1, config.integer("num_key_value_heads"))
        values["expert_shared_feed_forward_length"] = uint32(size)


def _hunyuan(config: Config, values: Hyperparameters) -> None:
    values |= alpha_values(config)
    if num_experts(config):
        values["expert_feed_forward_length"] = uint32(config.shared_integer("moe_intermediate_size"))
        values["expert_shared_feed_forward_length"] = uint32(config.integer("intermediate_size"))
        values["expert_shared_count"] = uint32(config.shared_integer("num_shared_expert"))


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


_DEEPSEEK2 = Family(
    architecture="deepseek2",
    layer_names=PRE_NORMS
    | EXPERTS
    | FEED_FORWARD
    | _SHARED
    | _CHOICE_BIAS
    | PREDICTION_HEAD
    | {
        "self_attn.q_proj": "attn_q",
        "self_attn.q_a_proj": "attn_q_a",
        "self_attn.q_a_layernorm": "attn_q_a_norm",
        "self_attn.q_b_proj": "attn_q_b",
        "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
        "self_attn.kv_a_layernorm": "attn_kv_a_norm",
        "self_attn.kv_b_proj": LATENT,
        "self_attn.o_proj": "attn_output",
    },
    hyperparameters=_deepseek2,
    has_more_layers=True,
    parts=FUSED_EXPERTS | {LATENT: keys_and_values},
)

_HUNYUAN_LAYER = (
    PROJECTIONS
    | PRE_NORMS
    | {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"}
)

MIXTURES = {
    "Ernie4_5_MoeForCausalLM": Family(
        architecture="ernie4_5-moe",
        layer_names=PROJECTIONS
        | PRE_NORMS
        | EXPERTS
        | FEED_FORWARD
        | _SHARED
        | {"mlp.moe_statics.e_score_correction": "exp_probs_b"},
        hyperparameters=_ernie,
        left_out=("model.mtp_",),
        parts=FUSED_EXPERTS,
    ),
    "HunYuanDenseV1ForCausalLM": Family(
        architecture="hunyuan-dense",
        layer_names=_HUNYUAN_LAYER | FEED_FORWARD,
        hyperparameters=_hunyuan,
        eos_key="eod_token_id",
    ),
    "HunYuanMoEV1ForCausalLM": Family(
        architecture="hunyuan-moe",
        layer_names=_HUNYUAN_LAYER
        | EXPERTS
        | {
            "mlp.gate.wg": "ffn_gate_inp",
            "mlp.shared_mlp.gate_proj": "ffn_gate_shexp",
            "mlp.shared_mlp.up_proj": "ffn_up_shexp",
            "mlp.shared_mlp.down_proj": "ffn_down_shexp",
        },
        hyperparameters=_hunyuan,
        parts=FUSED_EXPERTS,
    ),
    "Dots1ForCausalLM": Family(
        architecture="dots1",
        layer_names=_LAYER | PRE_NORMS,
        hyperparameters=_mixture,
        parts=FUSED_EXPERTS,
    ),
    "GptOssForCausalLM": Family(
        architecture="gpt-oss",
        layer_names=PROJECTIONS
        | {
            "self_attn.sinks": "attn_sinks",
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "post_attention_norm",
            "mlp.router": "ffn_gate_inp",
            "mlp.experts.gate_up_proj": GATE_AND_UP,
            "mlp.experts.gate_up_proj_blocks": GATE_AND_UP,
            "mlp.experts.down_proj": "ffn_down_exps",
            "mlp.experts.down_proj_blocks": "ffn_down_exps",
        },
        hyperparameters=_gpt_oss,
        parts={GATE_AND_UP: interleaved_gate_and_up},
    ),
    "DeepseekV2ForCausalLM": _DEEPSEEK2,
    "DeepseekV3ForCausalLM": _DEEPSEEK2,
    "Glm4MoeForCausalLM": Family(
        architecture="glm4moe",
        layer_names=_LAYER
        | PREDICTION_HEAD
        | {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm"},
        hyperparameters=_glm4moe,
        special_tokens={"bos": "[gMASK]", "unk": _GLM_END, "eot": "<|user|>", "eom": "<|observation|>"},
        has_more_layers=True,
        parts=FUSED_EXPERTS,
    ),
}
"""By the class that config.json names."""
