"""The families of models that can be converted, by the class that config.json names.

Names and conventions are those of llama.cpp's converter, whose files the engine runs.
"""

from __future__ import annotations

from puna.convert.errors import ConversionError
from puna.convert.models import extras
from puna.convert.models.config import Config
from puna.convert.models.encoders import ENCODERS
from puna.convert.models.family import (
    EXPERTS,
    FEED_FORWARD,
    FUSED_EXPERTS,
    NORMED_HEADS,
    PRE_NORMS,
    PROJECTIONS,
    SHARED_EXPERT,
    Family,
)
from puna.convert.models.granite import GRANITE
from puna.convert.models.layer_norm import LAYER_NORM_FAMILIES
from puna.convert.models.mixtures import GLM_SPECIAL, MIXTURES
from puna.convert.models.recurrent import RECURRENT
from puna.convert.parts.heads import GROUPED, grouped_heads

_TRANSFORMER = PROJECTIONS | PRE_NORMS | FEED_FORWARD
_MIXTRAL = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
}
_POST_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_GEMMA = _TRANSFORMER | _POST_NORMS | {"pre_feedforward_layernorm": "ffn_norm"}
_NORMED_BEHIND = PROJECTIONS | NORMED_HEADS | FEED_FORWARD | _POST_NORMS
_GEMMA_DEFAULTS = {
    "rms_norm_eps": 1e-6,
    "head_dim": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}


_LLAMA = Family(
    architecture="llama",
    layer_names=_TRANSFORMER | _MIXTRAL,
    hyperparameters=extras.llama,
    pairs_halves=True,
)
_GEMMA3 = Family(
    architecture="gemma3",
    layer_names=_GEMMA | NORMED_HEADS,
    hyperparameters=extras.gemma3,
    norms_add_one=True,
    has_output=False,
    defaults=_GEMMA_DEFAULTS
    | {"max_position_embeddings": 131072, "rope_theta": 1_000_000.0, "rope_local_base_freq": 10000.0},
)

_OLMO2 = Family(
    architecture="olmo2",
    layer_names=_NORMED_BEHIND,
    hyperparameters=extras.some_windows,
)

_ERNIE = Family(architecture="ernie4_5", layer_names=_TRANSFORMER)
_QWEN2VL = Family(architecture="qwen2vl", layer_names=_TRANSFORMER)
_PHI3 = Family(
    architecture="phi3",
    layer_names=PRE_NORMS
    | {
        "self_attn.qkv_proj": "attn_qkv",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    },
    hyperparameters=extras.phi3,
)

FAMILIES = {
    **ENCODERS,
    **LAYER_NORM_FAMILIES,
    **GRANITE,
    **MIXTURES,
    **RECURRENT,
    "ArceeForCausalLM": Family(
        architecture="arcee",
        layer_names=PROJECTIONS | PRE_NORMS | {"mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"},
        hyperparameters=extras.llama,
        pairs_halves=True,
    ),
    "Ernie4_5ForCausalLM": _ERNIE,
    "Ernie4_5_ForCausalLM": _ERNIE,
    "Glm4ForCausalLM": Family(
        architecture="glm4",
        layer_names=PROJECTIONS
        | PRE_NORMS
        | {
            "post_self_attn_layernorm": "post_attention_norm",
            "post_mlp_layernorm": "post_ffw_norm",
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        },
        hyperparameters=extras.glm4,
        special_tokens=GLM_SPECIAL,
    ),
    "OlmoeForCausalLM": Family(
        architecture="olmoe",
        layer_names=PROJECTIONS | PRE_NORMS | NORMED_HEADS | EXPERTS,
        defaults={"rms_norm_eps": 1e-5},
        parts=FUSED_EXPERTS,
    ),
    "Phi3ForCausalLM": _PHI3,
    "SeedOssForCausalLM": Family(
        architecture="seed_oss",
        layer_names=PROJECTIONS
        | FEED_FORWARD
        | {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm"},
    ),
    "InternLM2ForCausalLM": Family(
        architecture="internlm2",
        layer_names={
            "attention_norm": "attn_norm",
            "attention.wqkv": GROUPED,
            "attention.wo": "attn_output",
            "ffn_norm": "ffn_norm",
            "feed_forward.w1": "ffn_gate",
            "feed_forward.w2": "ffn_down",
            "feed_forward.w3": "ffn_up",
        },
        global_names={"model.tok_embeddings": "token_embd", "model.norm": "output_norm", "output": "output"},
        parts={GROUPED: grouped_heads},
        special_tokens={"eos": "<|im_end|>"},
        unused_tokens="[UNUSED",
    ),
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "MixtralForCausalLM": _LLAMA,
    "SmolLM3ForCausalLM": Family(
        architecture="smollm3", layer_names=_TRANSFORMER, hyperparameters=extras.llama, pairs_halves=True
    ),
    "Olmo2ForCausalLM": _OLMO2,
    "Olmo3ForCausalLM": _OLMO2,
    "Exaone4ForCausalLM": Family(
        architecture="exaone4",
        layer_names=_NORMED_BEHIND,
        hyperparameters=extras.some_windows,
    ),
    "Qwen2MoeForCausalLM": Family(
        architecture="qwen2moe",
        layer_names=PROJECTIONS | PRE_NORMS | EXPERTS | SHARED_EXPERT,
        hyperparameters=extras.shared_expert,
        parts=FUSED_EXPERTS,
    ),
    "Qwen2ForCausalLM": Family(architecture="qwen2", layer_names=_TRANSFORMER),
    "Qwen2VLForConditionalGeneration": _QWEN2VL,
    "Qwen2_5_VLForConditionalGeneration": _QWEN2VL,
    "Qwen3VLForConditionalGeneration": Family(
        architecture="qwen3vl", layer_names=_TRANSFORMER | NORMED_HEADS, hyperparameters=extras.qwen3vl
    ),
    "Qwen3ForCausalLM": Family(architecture="qwen3", layer_names=_TRANSFORMER | NORMED_HEADS),
    "Qwen3MoeForCausalLM": Family(
        architecture="qwen3moe",
        layer_names=PROJECTIONS | PRE_NORMS | NORMED_HEADS | EXPERTS,
        hyperparameters=extras.experts,
        parts=FUSED_EXPERTS,
    ),
    "Gemma2ForCausalLM": Family(
        architecture="gemma2",
        layer_names=_GEMMA,
        hyperparameters=extras.gemma2,
        norms_add_one=True,
        has_output=False,
        defaults=_GEMMA_DEFAULTS | {"max_position_embeddings": 8192},
    ),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
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
    family = FAMILIES[name]
    return family.variant(config) or family
