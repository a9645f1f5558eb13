"""Families of decoders whose norms take away the mean."""

from __future__ import annotations

from msgspec.structs import replace

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.family import (
    FEED_FORWARD,
    NORMED_HEADS,
    PRE_NORMS,
    PROJECTIONS,
    Family,
    Hyperparameters,
    Split,
)
from puna.convert.models.rope import rotary_dims
from puna.convert.models.sizes import falcon_kv_heads, width
from puna.convert.parts.heads import falcon_heads, transposed
from puna.gguf.writer import boolean, float32, string, uint32


def _layer_norm(config: Config, values: Hyperparameters) -> None:
    del values["attention.layer_norm_rms_epsilon"]
    epsilon = config.number("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
    values["attention.layer_norm_epsilon"] = float32(epsilon)


def _cohere(config: Config, values: Hyperparameters) -> None:
    _layer_norm(config, values)
    longest = config.integer("model_max_length", "max_position_embeddings")
    values["context_length"] = uint32(longest)
    values["logit_scale"] = float32(config.number("logit_scale"))
    values.setdefault("rope.scaling.type", string("none"))


def _cohere2(config: Config, values: Hyperparameters) -> None:
    _cohere(config, values)
    values["context_length"] = uint32(config.integer("max_position_embeddings"))
    values["attention.sliding_window"] = uint32(config.integer("sliding_window"))
    values["rope.dimension_count"] = rotary_dims(config, 1.0)


def _nemotron(config: Config, values: Hyperparameters) -> None:
    _layer_norm(config, values)
    values["rope.dimension_count"] = rotary_dims(config, 0.5)
    values.setdefault("rope.scaling.type", string("none"))


def _gpt2(config: Config, values: Hyperparameters) -> None:
    _layer_norm(config, values)
    values["feed_forward_length"] = uint32(config.integer("n_inner", default=4 * width(config)))


def _falcon(config: Config, values: Hyperparameters) -> None:
    for name, wanted in (("parallel_attn", True), ("alibi", False), ("bias", False)):
        if config.flag(name, wanted) != wanted:
            raise ConversionError(f"config.json: {name} is not known of Falcon")
    _layer_norm(config, values)
    values["attention.head_count_kv"] = uint32(falcon_kv_heads(config))
    values["feed_forward_length"] = uint32(4 * width(config))
    values["tensor_data_layout"] = string("jploski")


def _stablelm(config: Config, values: Hyperparameters) -> None:
    _layer_norm(config, values)
    values["rope.dimension_count"] = rotary_dims(config, 0.25)
    values["use_parallel_residual"] = boolean(config.flag("use_parallel_residual", True))


_UP_AND_DOWN = {"mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
_PARALLEL = PROJECTIONS | FEED_FORWARD | {"input_layernorm": "attn_norm"}
_COHERE = Family(
    architecture="command-r",
    layer_names=_PARALLEL | NORMED_HEADS,
    hyperparameters=_cohere,
    has_output=False,
    defaults={"layer_norm_eps": 1e-5},
)

_TRANSPOSED: dict[str, Split] = dict.fromkeys(("attn_qkv", "attn_output", "ffn_up", "ffn_down"), transposed)

LAYER_NORM_FAMILIES = {
    "FalconForCausalLM": Family(
        architecture="falcon",
        layers="transformer.h.",
        layer_names={
            "input_layernorm": "attn_norm",
            "ln_attn": "attn_norm_2",
            "ln_mlp": "attn_norm",
            "self_attention.query_key_value": "attn_qkv",
            "self_attention.dense": "attn_output",
            "mlp.dense_h_to_4h": "ffn_up",
            "mlp.dense_4h_to_h": "ffn_down",
        },
        global_names={
            "transformer.word_embeddings": "token_embd",
            "transformer.ln_f": "output_norm",
            "lm_head": "output",
        },
        hyperparameters=_falcon,
        parts={"attn_qkv": falcon_heads},
        defaults={"intermediate_size": 0},
    ),
    "GPT2LMHeadModel": Family(
        architecture="gpt2",
        layers="h.",
        layer_names={
            "ln_1": "attn_norm",
            "attn.c_attn": "attn_qkv",
            "attn.c_proj": "attn_output",
            "ln_2": "ffn_norm",
            "mlp.c_fc": "ffn_up",
            "mlp.c_proj": "ffn_down",
        },
        global_names={
            "wte": "token_embd",
            "wpe": "position_embd",
            "ln_f": "output_norm",
            "lm_head": "output",
        },
        prefixes=("transformer.",),
        hyperparameters=_gpt2,
        parts=_TRANSPOSED,
        defaults={"intermediate_size": 0},
    ),
    "CohereForCausalLM": _COHERE,
    "Cohere2ForCausalLM": replace(
        _COHERE, architecture="cohere2", layer_names=_PARALLEL, hyperparameters=_cohere2
    ),
    "NemotronForCausalLM": Family(
        architecture="nemotron",
        layer_names=PROJECTIONS | PRE_NORMS | _UP_AND_DOWN,
        hyperparameters=_nemotron,
        norms_add_one=True,
    ),
    "StableLmForCausalLM": Family(
        architecture="stablelm",
        layer_names=PROJECTIONS | PRE_NORMS | FEED_FORWARD,
        hyperparameters=_stablelm,
    ),
    "Starcoder2ForCausalLM": Family(
        architecture="starcoder2",
        layer_names=PROJECTIONS | PRE_NORMS | {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
        hyperparameters=_layer_norm,
    ),
}
"""By the class that config.json names."""
