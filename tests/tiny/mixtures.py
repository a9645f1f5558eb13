"""Models with experts."""

from __future__ import annotations

from tests.tiny.files import Tiny
from tests.tiny.parts import EXPERTS, LATENTS, MULTIPLIERS, SHARED, YARN
from tests.tiny.tensors import layers, mixture_layers

GROUPS = {
    "expert_count": 12,
    "expert_gating_func": 2,
    "expert_group_count": 4,
    "expert_group_used_count": 2,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
}

MIXTURES = {
    "mixtral": Tiny("llama", ffn=64, tied=False, metadata=EXPERTS, layer_tensors=layers.with_experts),
    "qwen2moe": Tiny(
        "qwen2moe",
        qkv_bias=True,
        tied=False,
        metadata=EXPERTS | {"expert_shared_feed_forward_length": 160},
        layer_tensors=mixture_layers.qwen2moe,
    ),
    "granitemoe": Tiny(
        "granitemoe", ffn=64, metadata=MULTIPLIERS | EXPERTS, layer_tensors=layers.with_experts
    ),
    "qwen3moe": Tiny(
        "qwen3moe", qk_norm=True, head_dim=32, metadata=EXPERTS, layer_tensors=layers.with_experts
    ),
    "deepseek2": Tiny(
        "deepseek2",
        layers=4,
        metadata=EXPERTS | YARN | LATENTS | GROUPS | {"attention.q_lora_rank": 32, "nextn_predict_layers": 1},
        layer_tensors=mixture_layers.deepseek2,
    ),
    # llama.cpp takes queries without a product of lower rank only from so many layers.
    "deepseek2-lite": Tiny(
        "deepseek2",
        layers=27,
        width=64,
        heads=3,
        tied=False,
        metadata=EXPERTS | YARN | LATENTS,
        layer_tensors=mixture_layers.deepseek2,
        embedding_scale=3.0,
    ),
    "deepseek": Tiny("deepseek", metadata=SHARED, layer_tensors=mixture_layers.mixture),
    "bailingmoe": Tiny(
        "bailingmoe",
        tied=False,
        metadata=SHARED
        | {"leading_dense_block_count": 0, "expert_weights_norm": True, "expert_weights_scale": 1.5},
        layer_tensors=mixture_layers.mixture,
    ),
    "bailingmoe2": Tiny(
        "bailingmoe2",
        tied=False,
        qk_norm=True,
        choice_bias=True,
        metadata=SHARED | GROUPS,
        layer_tensors=mixture_layers.bailingmoe2,
    ),
    "dots1": Tiny(
        "dots1",
        tied=False,
        kv_heads=6,
        qk_norm=True,
        choice_bias=True,
        metadata=SHARED | {"expert_gating_func": 2, "expert_weights_norm": True},
        layer_tensors=mixture_layers.mixture,
    ),
    "ernie4_5-moe": Tiny(
        "ernie4_5-moe",
        layers=4,
        choice_bias=True,
        metadata=EXPERTS
        | {
            "expert_shared_feed_forward_length": 64,
            "leading_dense_block_count": 1,
            "interleave_moe_layer_step": 1,
        },
        layer_tensors=mixture_layers.mixture,
    ),
    "glm4moe": Tiny(
        "glm4moe",
        layers=3,
        qkv_bias=True,
        choice_bias=True,
        metadata=SHARED | {"rope.dimension_count": 8, "expert_weights_norm": True, "nextn_predict_layers": 1},
        layer_tensors=mixture_layers.glm4moe,
    ),
    "llama4": Tiny(
        "llama4",
        layers=5,
        tied=False,
        freq_factors=True,
        embedding_scale=3.0,
        metadata=EXPERTS | {"expert_shared_count": 1, "interleave_moe_layer_step": 2},
        layer_tensors=layers.llama4,
    ),
    "hunyuan-moe": Tiny(
        "hunyuan-moe",
        ffn=64,
        qk_norm=True,
        metadata=EXPERTS | {"leading_dense_block_count": 0, "expert_shared_feed_forward_length": 64},
        layer_tensors=mixture_layers.mixture,
    ),
    "phimoe": Tiny(
        "phimoe",
        ffn=64,
        tied=False,
        qkv_bias=True,
        long_factors=True,
        norm_bias=True,
        output_bias=True,
        metadata=EXPERTS | {"rope.scaling.original_context_length": 512, "rope.scaling.attn_factor": 1.19},
        layer_tensors=mixture_layers.phimoe,
    ),
    "dbrx": Tiny(
        "dbrx",
        ffn=64,
        tied=False,
        metadata=EXPERTS | {"attention.layer_norm_epsilon": 1e-5, "attention.clamp_kqv": 1.2},
        layer_tensors=mixture_layers.dbrx,
    ),
    "arctic": Tiny("arctic", ffn=64, metadata=EXPERTS, layer_tensors=mixture_layers.arctic),
    "grok": Tiny(
        "grok",
        ffn=64,
        metadata=EXPERTS | {"embedding_scale": 1.5, "attention.output_scale": 0.3},
        layer_tensors=mixture_layers.grok,
    ),
    "grok-2": Tiny(
        "grok",
        metadata=EXPERTS
        | {
            "attn_logit_softcapping": 4.0,
            "embedding_scale": 1.5,
            "final_logit_softcapping": 6.0,
            "logit_scale": 1.5,
        },
        layer_tensors=mixture_layers.grok_2,
        ffn_scale=0.03,
    ),
    "olmoe": Tiny(
        "olmoe", ffn=64, kv_heads=6, tied=False, metadata=EXPERTS, layer_tensors=mixture_layers.olmoe
    ),
    "qwen3vlmoe": Tiny(
        "qwen3vlmoe",
        qk_norm=True,
        metadata=EXPERTS | {"rope.dimension_sections": [3, 3, 2, 0]},
        layer_tensors=layers.with_experts,
    ),
    "minimax-m2": Tiny(
        "minimax-m2",
        ffn=64,
        tied=False,
        choice_bias=True,
        metadata=EXPERTS
        | {"expert_gating_func": 2, "leading_dense_block_count": 0, "rope.dimension_count": 8},
        layer_tensors=mixture_layers.minimax_m2,
    ),
    "hy_v3": Tiny(
        "hy_v3",
        layers=4,
        qk_norm=True,
        metadata=SHARED
        | {"expert_weights_norm": True, "expert_weights_scale": 2.5, "nextn_predict_layers": 1},
        layer_tensors=mixture_layers.hy_v3,
    ),
    "mistral4": Tiny(
        "mistral4",
        layers=3,
        tied=False,
        metadata=EXPERTS
        | YARN
        | LATENTS
        | {
            "attention.q_lora_rank": 32,
            "attention.temperature_length": 64,
            "attention.temperature_scale": 0.4,
            "expert_weights_norm": True,
        },
        layer_tensors=mixture_layers.deepseek2,
    ),
    "granite_swa-experts": Tiny(
        "granite_swa",
        ffn=64,
        metadata=MULTIPLIERS
        | EXPERTS
        | {
            "attention.sliding_window": 37,
            "attention.sliding_window_pattern": [True, False],
            "expert_shared_feed_forward_length": 96,
        },
        layer_tensors=mixture_layers.granite_swa,
    ),
}
