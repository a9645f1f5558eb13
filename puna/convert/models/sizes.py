"""How large a model is: what configurations call in several ways."""

from __future__ import annotations

from puna.convert.models.config import Config

MAX_LAYERS = 1024
MAX_HEADS = 1024


def num_layers(config: Config) -> int:
    return config.integer("num_hidden_layers", "n_layers", "n_layer", maximum=MAX_LAYERS)


def num_prediction_layers(config: Config) -> int:
    """Behind these: they predict further tokens."""
    return config.integer("num_nextn_predict_layers", default=0, maximum=MAX_LAYERS)


def num_heads(config: Config) -> int:
    return config.integer("num_attention_heads", "n_heads", "n_head", maximum=MAX_HEADS)


def num_kv_heads(config: Config) -> int:
    return config.integer("num_key_value_heads", default=num_heads(config), maximum=MAX_HEADS)


def width(config: Config) -> int:
    return config.integer("hidden_size", "n_embd", "dim")


def falcon_kv_heads(config: Config) -> int:
    """Of the first models one, whatever number is said."""
    if config.flag("multi_query") and not config.flag("new_decoder_architecture"):
        return 1
    return config.integer("num_kv_heads", "n_head_kv", default=1, maximum=MAX_HEADS)


def head_dim(config: Config) -> int:
    shared = width(config) // max(1, num_heads(config))
    return config.integer("head_dim", default=shared)


def num_experts(config: Config) -> int:
    """0: layers have none."""
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    return config.integer(*names, default=0, maximum=MAX_HEADS)
