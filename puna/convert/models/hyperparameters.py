"""GGUF's hyperparameters from config.json: what all decoders, and all encoders, have in common."""

from __future__ import annotations

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.family import Family, Hyperparameters
from puna.convert.models.rope import rope_values
from puna.convert.models.sizes import head_dim, num_experts, num_heads, num_kv_heads, num_layers, width
from puna.gguf.writer import GgufValue, boolean, float32, uint32


def first_position(family: Family, config: Config) -> int:
    """Of those that are numbered from 0 in GGUF."""
    padding = config.token_id("pad_token_id") if family.skips_padding else None
    return 0 if padding is None else padding + 1


def hyperparameters(family: Family, config: Config, num_prediction: int) -> dict[str, GgufValue]:
    """Metadata below `<architecture>.`; config: with the family's defaults. num_prediction: layers that
    predict further tokens. Raises ConversionError.
    """
    values = _encoders(family, config) if family.is_encoder else _decoders(config)
    if num_prediction:
        values["block_count"] = uint32(num_layers(config) + num_prediction)
        values["nextn_predict_layers"] = uint32(num_prediction)
    family.hyperparameters(config, values)
    for name, value in values.items():  # products of what config.json says
        if value.type == "uint32" and value.value >= 1 << 32:
            raise ConversionError(f"config.json: {name} would be {value.value}, more than any model has")
    return {f"{family.architecture}.{name}": value for name, value in values.items()}


def _decoders(config: Config) -> Hyperparameters:
    values: Hyperparameters = {
        "block_count": uint32(num_layers(config)),
        "context_length": uint32(
            config.integer("max_position_embeddings", "n_positions", "n_ctx", default=2048)
        ),
        "embedding_length": uint32(width(config)),
        "attention.head_count": uint32(num_heads(config)),
        "attention.head_count_kv": uint32(num_kv_heads(config)),
        "attention.key_length": uint32(head_dim(config)),
        "attention.value_length": uint32(head_dim(config)),
        "attention.layer_norm_rms_epsilon": float32(config.number("rms_norm_eps", "norm_eps", default=1e-6)),
        **rope_values(config),
    }
    count = num_experts(config)
    if config.has("intermediate_size") or not count:
        values["feed_forward_length"] = uint32(config.integer("intermediate_size", "n_inner"))
    if count:
        used = config.shared_integer("num_experts_per_tok", "moe_k", "moe_topk")
        if used > count:
            raise ConversionError(f"config.json: {used} of {count} experts cannot be used")
        values["expert_count"] = uint32(count)
        values["expert_used_count"] = uint32(used)
    return values


def _encoders(family: Family, config: Config) -> Hyperparameters:
    positions = config.integer("max_position_embeddings", "n_positions")
    epsilon = config.number("layer_norm_eps", "layer_norm_epsilon", "norm_eps")
    return {
        "block_count": uint32(num_layers(config)),
        "context_length": uint32(max(0, positions - first_position(family, config))),
        "embedding_length": uint32(width(config)),
        "feed_forward_length": uint32(config.integer("intermediate_size", "n_inner", "hidden_dim")),
        "attention.head_count": uint32(num_heads(config)),
        "attention.layer_norm_epsilon": float32(epsilon),
        "attention.causal": boolean(False),
    }
