"""Metadata that several tiny models share."""

from __future__ import annotations

EXPERTS = {"expert_count": 7, "expert_used_count": 3, "expert_feed_forward_length": 64}
SHARED = EXPERTS | {"expert_shared_count": 1, "leading_dense_block_count": 1}
YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 512,
}
MULTIPLIERS = {
    "attention.scale": 0.3,
    "embedding_scale": 1.5,
    "logit_scale": 1.5,
    "residual_scale": 0.6,
}
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
