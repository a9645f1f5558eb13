"""GGUF's hyperparameters from config.json: what all families have in common."""

from __future__ import annotations

from puna.convert.models.config import Config
from puna.convert.models.family import Family, Hyperparameters
from puna.convert.models.rope import rope_values
from puna.gguf.writer import GgufValue, float32, uint32

MAX_LAYERS = 1024
MAX_HEADS = 1024


def num_layers(config: Config) -> int:
    return config.integer("num_hidden_layers", "n_layers", maximum=MAX_LAYERS)


def num_heads(config: Config) -> int:
    return config.integer("num_attention_heads", "n_heads", maximum=MAX_HEADS)


def num_kv_heads(config: Config) -> int:
    return config.integer("num_key_value_heads", default=num_heads(config), maximum=MAX_HEADS)


def head_dim(config: Config) -> int:
    shared = config.integer("hidden_size") // max(1, num_heads(config))
    return config.integer("head_dim", default=shared)


def num_experts(config: Config) -> int:
    """0: layers have none."""
    return config.integer("num_local_experts", "num_experts", default=0, maximum=MAX_HEADS)


def hyperparameters(family: Family, config: Config) -> dict[str, GgufValue]:
    """Metadata below `<architecture>.`; config: with the family's defaults. Raises ConversionError."""
    values: Hyperparameters = {
        "block_count": uint32(num_layers(config)),
        "context_length": uint32(config.integer("max_position_embeddings", default=2048)),
        "embedding_length": uint32(config.integer("hidden_size")),
        "feed_forward_length": uint32(config.integer("intermediate_size")),
        "attention.head_count": uint32(num_heads(config)),
        "attention.head_count_kv": uint32(num_kv_heads(config)),
        "attention.key_length": uint32(head_dim(config)),
        "attention.value_length": uint32(head_dim(config)),
        "attention.layer_norm_rms_epsilon": float32(config.number("rms_norm_eps", "norm_eps", default=1e-6)),
        **rope_values(config),
    }
    if count := num_experts(config):
        values["expert_count"] = uint32(count)
        values["expert_used_count"] = uint32(config.integer("num_experts_per_tok", maximum=count))
    family.hyperparameters(config, values)
    return {f"{family.architecture}.{name}": value for name, value in values.items()}
