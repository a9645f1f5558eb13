"""Models some of whose layers keep a state instead of keys and values."""

from __future__ import annotations

from tests.tiny.files import Tiny
from tests.tiny.parts import EXPERTS, LATENTS, MULTIPLIERS
from tests.tiny.tensors import hybrid_layers

DELTA_NET = {
    "full_attention_interval": 3,
    "rope.dimension_count": 16,
    "ssm.conv_kernel": 4,
    "ssm.group_count": 3,
    "ssm.inner_size": 96,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 6,
}
QWEN35 = DELTA_NET | {"rope.dimension_sections": [3, 3, 2, 0], "nextn_predict_layers": 1}
MAMBA2 = {
    "ssm.conv_kernel": 4,
    "ssm.group_count": 2,
    "ssm.inner_size": 192,
    "ssm.state_size": 24,
    "ssm.time_step_rank": 12,
}
GRANITE = MAMBA2 | MULTIPLIERS | {"attention.head_count_kv": [0, 2, 0]}

MAMBA = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 192,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 32,
}
NEMOTRON = {
    "attention.head_count_kv": [0, 0, 2, 0],
    "attention.layer_norm_epsilon": 1e-5,
    "attention.layer_norm_rms_epsilon": 1e-5,
}

HYBRIDS = {
    "qwen35": Tiny(
        "qwen35", layers=6, qk_norm=True, head_dim=32, metadata=QWEN35, layer_tensors=hybrid_layers.qwen35
    ),
    "qwen35moe": Tiny(
        "qwen35moe",
        layers=4,
        qk_norm=True,
        tied=False,
        metadata=QWEN35 | EXPERTS | {"expert_shared_feed_forward_length": 160},
        layer_tensors=hybrid_layers.qwen35,
    ),
    "qwen3next": Tiny(
        "qwen3next",
        layers=4,
        qk_norm=True,
        metadata=DELTA_NET | EXPERTS | {"expert_shared_feed_forward_length": 160, "nextn_predict_layers": 1},
        layer_tensors=hybrid_layers.qwen35,
    ),
    "qwen3next-one-projection": Tiny(
        "qwen3next",
        layers=3,
        qk_norm=True,
        metadata=DELTA_NET | EXPERTS | {"expert_shared_feed_forward_length": 160},
        one_projection=True,
        layer_tensors=hybrid_layers.qwen35,
    ),
    "lfm2": Tiny(
        "lfm2",
        layers=4,
        qk_norm=True,
        metadata={"attention.head_count_kv": [0, 0, 2, 0], "shortconv.l_cache": 3},
        layer_tensors=hybrid_layers.lfm2,
        output_norm="token_embd_norm.weight",
    ),
    "lfm2moe": Tiny(
        "lfm2moe",
        layers=3,
        qk_norm=True,
        metadata=EXPERTS
        | {
            "attention.head_count_kv": [0, 3, 0],
            "expert_gating_func": 2,
            "leading_dense_block_count": 1,
            "shortconv.l_cache": 4,
        },
        kv_heads=3,
        layer_tensors=hybrid_layers.lfm2,
        output_norm="token_embd_norm.weight",
    ),
    "granitehybrid": Tiny(
        "granitehybrid",
        layers=3,
        metadata=GRANITE | {"rope.scaling.finetuned": False},
        layer_tensors=hybrid_layers.granite_hybrid,
    ),
    "granitehybrid-experts": Tiny(
        "granitehybrid",
        layers=3,
        ffn=64,
        tied=False,
        metadata=GRANITE | EXPERTS | {"expert_shared_feed_forward_length": 64, "ssm.group_count": 1},
        layer_tensors=hybrid_layers.granite_hybrid,
    ),
    "nemotron_h": Tiny(
        "nemotron_h",
        layers=4,
        tied=False,
        metadata=MAMBA2 | NEMOTRON | {"feed_forward_length": [0, 160, 0, 160]},
        layer_tensors=hybrid_layers.nemotron_h,
    ),
    "nemotron_h_moe": Tiny(
        "nemotron_h_moe",
        layers=5,
        tied=False,
        metadata=MAMBA2
        | NEMOTRON
        | EXPERTS
        | {
            "attention.head_count_kv": [0, 0, 2, 0, 0],
            "feed_forward_length": [0, 64, 0, 64, 0],
            "expert_group_count": 1,
            "expert_shared_count": 1,
            "expert_shared_feed_forward_length": 96,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
        },
        layer_tensors=hybrid_layers.nemotron_h,
    ),
    "nemotron_h_moe-latent": Tiny(
        "nemotron_h_moe",
        layers=4,
        metadata=MAMBA2
        | NEMOTRON
        | EXPERTS
        | {
            "expert_used_count": [0, 3, 0, 2],
            "feed_forward_length": [0, 64, 0, 64],
            "expert_shared_feed_forward_length": 96,
            "expert_weights_norm": True,
            "moe_latent_size": 64,
        },
        layer_tensors=hybrid_layers.nemotron_h,
    ),
    "falcon-h1": Tiny(
        "falcon-h1", layers=3, tied=False, metadata=MAMBA2, layer_tensors=hybrid_layers.falcon_h1
    ),
    "mamba": Tiny("mamba", layers=4, heads=0, metadata=MAMBA, layer_tensors=hybrid_layers.mamba),
    "falcon-mamba": Tiny(
        "mamba",
        layers=4,
        heads=0,
        tied=False,
        metadata=MAMBA | {"ssm.dt_b_c_rms": True},
        layer_tensors=hybrid_layers.mamba,
    ),
    "jamba": Tiny(
        "jamba",
        layers=4,
        ffn=64,
        metadata=MAMBA | EXPERTS | {"attention.head_count_kv": [0, 0, 2, 0]},
        layer_tensors=hybrid_layers.jamba,
    ),
    "mamba2": Tiny("mamba2", layers=4, heads=0, metadata=MAMBA2, layer_tensors=hybrid_layers.mamba2),
    "kimi-linear": Tiny(
        "kimi-linear",
        layers=4,
        heads=3,
        tied=False,
        metadata=EXPERTS
        | LATENTS
        | {
            "attention.head_count_kv": [0, 0, 1, 0],
            "expert_gating_func": 2,
            "expert_weights_scale": 2.5,
            "kda.head_dim": 32,
            "ssm.conv_kernel": 4,
        },
        layer_tensors=hybrid_layers.kimi_linear,
        embedding_scale=3.0,
    ),
    # llama.cpp asks the first layer how much of a head is rotated, and does not end if that has none.
    "plamo2": Tiny(
        "plamo2",
        layers=4,
        metadata=MAMBA2
        | {
            "attention.head_count": [6, 0, 6, 0],
            "attention.head_count_kv": [2, 0, 2, 0],
            "ssm.group_count": 0,
        },
        layer_tensors=hybrid_layers.plamo2,
        embedding_scale=3.0,
    ),
}
