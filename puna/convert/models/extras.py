"""Hyperparameters that only some families have."""

from __future__ import annotations

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.family import Hyperparameters
from puna.convert.models.rope import rotary_dims
from puna.gguf.writer import array, float32, uint32


def llama(_: Config, values: Hyperparameters) -> None:
    values["rope.dimension_count"] = values["attention.key_length"]


def experts(config: Config, values: Hyperparameters) -> None:
    values["expert_feed_forward_length"] = uint32(config.integer("moe_intermediate_size"))


def gemma2(config: Config, values: Hyperparameters) -> None:
    values["attn_logit_softcapping"] = float32(config.number("attn_logit_softcapping", default=50.0))
    values["final_logit_softcapping"] = float32(config.number("final_logit_softcapping", default=30.0))
    values["attention.sliding_window"] = uint32(config.integer("sliding_window", default=4096))


def gemma3(config: Config, values: Hyperparameters) -> None:
    if config.has("attn_logit_softcapping"):
        raise ConversionError("config.json: attn_logit_softcapping is not known of Gemma 3")
    if config.has("final_logit_softcapping"):
        values["final_logit_softcapping"] = float32(config.number("final_logit_softcapping"))
    if config.integer("sliding_window_pattern", default=6) != 1:
        values["attention.sliding_window"] = uint32(config.integer("sliding_window", default=4096))


def glm4(config: Config, values: Hyperparameters) -> None:
    values["rope.dimension_count"] = rotary_dims(config, 0.5)


def qwen3vl(config: Config, values: Hyperparameters) -> None:
    seeing = config.section("vision_config")
    layers = seeing.numbers("deepstack_visual_indexes") if seeing.has("deepstack_visual_indexes") else ()
    values["n_deepstack_layers"] = uint32(len(layers))


def phi3(config: Config, values: Hyperparameters) -> None:
    values["rope.dimension_count"] = rotary_dims(config, 1.0)
    # Phi-4 has no window, and says so by 0.
    values["attention.sliding_window"] = uint32(config.integer("sliding_window", default=0))


def some_windows(config: Config, values: Hyperparameters) -> None:
    """Of models in which some layers attend to a window only, if there is one."""
    if not config.has("sliding_window"):
        return
    values["attention.sliding_window"] = uint32(config.integer("sliding_window"))
    num_layers = config.integer("num_hidden_layers", maximum=1024)
    kinds = config.texts("layer_types", num_layers)
    if kinds is None:
        windows = [layer % 4 != 3 for layer in range(num_layers)]
    else:
        windows = [kind == "sliding_attention" for kind in kinds]
    values["attention.sliding_window_pattern"] = array("bool", windows)


def shared_expert(config: Config, values: Hyperparameters) -> None:
    """If there are experts."""
    if config.has("moe_intermediate_size"):
        experts(config, values)
    size = config.integer("shared_expert_intermediate_size", default=0)
    if size:
        values["expert_shared_feed_forward_length"] = uint32(size)
