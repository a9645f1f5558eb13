"""The families of models that can be converted, by the class that config.json names.

Names and conventions are those of llama.cpp's converter, whose files the engine runs.
"""

from __future__ import annotations

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.family import (
    ATTENTION,
    EXPERTS,
    FEED_FORWARD,
    NORMED_HEADS,
    Family,
    Hyperparameters,
)
from puna.gguf.writer import array, float32, uint32

_TRANSFORMER = ATTENTION | FEED_FORWARD
_MIXTRAL = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
}
_POST_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_GEMMA_DEFAULTS = {
    "rms_norm_eps": 1e-6,
    "head_dim": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}


def _llama(_: Config, values: Hyperparameters) -> None:
    values["rope.dimension_count"] = values["attention.key_length"]


def _experts(config: Config, values: Hyperparameters) -> None:
    values["expert_feed_forward_length"] = uint32(config.integer("moe_intermediate_size"))


def _gemma2(config: Config, values: Hyperparameters) -> None:
    values["attn_logit_softcapping"] = float32(config.number("attn_logit_softcapping", default=50.0))
    values["final_logit_softcapping"] = float32(config.number("final_logit_softcapping", default=30.0))
    values["attention.sliding_window"] = uint32(config.integer("sliding_window", default=4096))


def _gemma3(config: Config, values: Hyperparameters) -> None:
    if config.has("attn_logit_softcapping"):
        raise ConversionError("config.json: attn_logit_softcapping is not known of Gemma 3")
    if config.has("final_logit_softcapping"):
        values["final_logit_softcapping"] = float32(config.number("final_logit_softcapping"))
    if config.integer("sliding_window_pattern", default=6) != 1:
        values["attention.sliding_window"] = uint32(config.integer("sliding_window", default=4096))


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


_LLAMA = Family(
    architecture="llama",
    layer_names=_TRANSFORMER | _MIXTRAL,
    hyperparameters=_llama,
    pairs_halves=True,
)
_GEMMA3 = Family(
    architecture="gemma3",
    layer_names=_TRANSFORMER | NORMED_HEADS | _POST_NORMS,
    hyperparameters=_gemma3,
    norms_add_one=True,
    has_output=False,
    defaults=_GEMMA_DEFAULTS
    | {"max_position_embeddings": 131072, "rope_theta": 1_000_000.0, "rope_local_base_freq": 10000.0},
)

FAMILIES = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "MixtralForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": Family(architecture="qwen2", layer_names=_TRANSFORMER),
    "Qwen3ForCausalLM": Family(architecture="qwen3", layer_names=_TRANSFORMER | NORMED_HEADS),
    "Qwen3MoeForCausalLM": Family(
        architecture="qwen3moe", layer_names=_TRANSFORMER | NORMED_HEADS | EXPERTS, hyperparameters=_experts
    ),
    "Gemma2ForCausalLM": Family(
        architecture="gemma2",
        layer_names=_TRANSFORMER | _POST_NORMS,
        hyperparameters=_gemma2,
        norms_add_one=True,
        has_output=False,
        defaults=_GEMMA_DEFAULTS | {"max_position_embeddings": 8192},
    ),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
    "Lfm2ForCausalLM": Family(
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
    ),
}


def family_of_architecture(name: str) -> Family:
    """By GGUF's name. Raises ConversionError."""
    for family in FAMILIES.values():
        if family.architecture == name:
            return family
    raise ConversionError(f"adapters for {name[:60]!r} cannot be converted")


def family_of(config: Config) -> Family:
    """Raises ConversionError."""
    name = config.model_class
    if name not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise ConversionError(
            f"config.json: models of the class {name[:60]!r} cannot be converted ({known} can)"
        )
    return FAMILIES[name]
