"""Families of decoders whose norms take away the mean."""

from __future__ import annotations

from msgspec.structs import replace

from puna.convert.models.config import Config
from puna.convert.models.family import (
    FEED_FORWARD,
    NORMED_HEADS,
    PRE_NORMS,
    PROJECTIONS,
    Family,
    Hyperparameters,
)
from puna.convert.models.rope import rotary_dims
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

LAYER_NORM_FAMILIES = {
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
