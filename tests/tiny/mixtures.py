"""Models with experts."""

from __future__ import annotations

from tests.tiny import layers
from tests.tiny.files import Tiny
from tests.tiny.parts import EXPERTS, MULTIPLIERS, YARN

LATENTS = {
    "attention.head_count_kv": 1,
    "attention.kv_lora_rank": 64,
    "attention.key_length": 80,
    "attention.value_length": 64,
    "attention.key_length_mla": 48,
    "attention.value_length_mla": 32,
    "rope.dimension_count": 16,
    "expert_shared_count": 1,
    "leading_dense_block_count": 1,
    "rope.scaling.yarn_log_multiplier": 0.0707,
}

MIXTURES = {
    "mixtral": Tiny("llama", ffn=64, tied=False, metadata=EXPERTS, layer_tensors=layers.with_experts),
    "qwen2moe": Tiny(
        "qwen2moe",
        qkv_bias=True,
        tied=False,
        metadata=EXPERTS | {"expert_shared_feed_forward_length": 160},
        layer_tensors=layers.qwen2moe,
    ),
    "granitemoe": Tiny(
        "granitemoe", ffn=64, metadata=MULTIPLIERS | EXPERTS, layer_tensors=layers.with_experts
    ),
    "qwen3moe": Tiny(
        "qwen3moe", qk_norm=True, head_dim=32, metadata=EXPERTS, layer_tensors=layers.with_experts
    ),
    "gpt-oss": Tiny(
        "gpt-oss",
        layers=3,
        qkv_bias=True,
        tied=False,
        metadata=EXPERTS | YARN | {"attention.sliding_window": 37},
        layer_tensors=layers.gpt_oss,
    ),
    "deepseek2": Tiny(
        "deepseek2",
        layers=3,
        metadata=EXPERTS
        | YARN
        | LATENTS
        | {
            "attention.q_lora_rank": 32,
            "expert_count": 12,
            "expert_gating_func": 2,
            "expert_group_count": 4,
            "expert_group_used_count": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
        },
        layer_tensors=layers.deepseek2,
    ),
    # llama.cpp takes queries without a product of lower rank only from so many layers.
    "deepseek2-lite": Tiny(
        "deepseek2",
        layers=27,
        width=64,
        heads=3,
        tied=False,
        metadata=EXPERTS | YARN | LATENTS,
        layer_tensors=layers.deepseek2,
    ),
}
