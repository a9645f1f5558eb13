"""Models whose norms take away the mean."""

from __future__ import annotations

from tests.tiny import layers
from tests.tiny.files import Tiny

LAYER_NORM = {"attention.layer_norm_epsilon": 1e-4}

LAYER_NORM_MODELS = {
    "command-r": Tiny(
        "command-r", metadata=LAYER_NORM | {"logit_scale": 0.25}, layer_tensors=layers.one_norm
    ),
    "cohere2": Tiny(
        "cohere2",
        layers=5,
        metadata=LAYER_NORM | {"logit_scale": 0.25, "attention.sliding_window": 37},
        layer_tensors=layers.one_norm,
        embedding_scale=3.0,
    ),
    "starcoder2": Tiny(
        "starcoder2",
        metadata=LAYER_NORM,
        layer_tensors=layers.with_biases,
        norm_bias=True,
        ffn_scale=0.03,
    ),
    "stablelm": Tiny(
        "stablelm",
        tied=False,
        qkv_bias=True,
        metadata=LAYER_NORM | {"rope.dimension_count": 8},
        layer_tensors=layers.stablelm,
        norm_bias=True,
    ),
    "stablelm-12b": Tiny(
        "stablelm", tied=False, metadata=LAYER_NORM, layer_tensors=layers.stablelm_12b, norm_bias=True
    ),
    "gptneox": Tiny(
        "gptneox",
        tied=False,
        kv_heads=6,
        metadata=LAYER_NORM | {"rope.dimension_count": 8, "use_parallel_residual": True},
        layer_tensors=layers.fused,
        norm_bias=True,
        ffn_scale=0.03,
    ),
    "gptneox-sequential": Tiny(
        "gptneox",
        tied=False,
        kv_heads=6,
        metadata=LAYER_NORM | {"use_parallel_residual": False},
        layer_tensors=layers.fused,
        norm_bias=True,
        ffn_scale=0.03,
    ),
    "phi2": Tiny(
        "phi2",
        tied=False,
        kv_heads=6,
        metadata=LAYER_NORM,
        layer_tensors=layers.phi2,
        norm_bias=True,
        output_bias=True,
        ffn_scale=0.03,
    ),
    "falcon": Tiny(
        "falcon",
        kv_heads=1,
        metadata=LAYER_NORM,
        layer_tensors=layers.falcon,
        norm_bias=True,
        ffn_scale=0.03,
    ),
    "nemotron": Tiny(
        "nemotron",
        tied=False,
        metadata=LAYER_NORM | {"rope.dimension_count": 8},
        layer_tensors=layers.with_biases,
        norm_bias=True,
        ffn_scale=0.2,
    ),
    "orion": Tiny("orion", tied=False, metadata=LAYER_NORM, layer_tensors=layers.stablelm, norm_bias=True),
    "jais2": Tiny(
        "jais2",
        tied=False,
        qkv_bias=True,
        metadata=LAYER_NORM,
        layer_tensors=layers.with_biases,
        norm_bias=True,
        ffn_scale=0.2,
    ),
    "codeshell": Tiny(
        "codeshell",
        tied=False,
        metadata=LAYER_NORM,
        layer_tensors=layers.fused,
        norm_bias=True,
        ffn_scale=0.03,
    ),
    "gpt2": Tiny(
        "gpt2",
        kv_heads=6,
        positions=True,
        metadata=LAYER_NORM,
        layer_tensors=layers.fused,
        norm_bias=True,
        ffn_scale=0.03,
    ),
    "starcoder": Tiny(
        "starcoder",
        kv_heads=1,
        tied=False,
        positions=True,
        metadata=LAYER_NORM,
        layer_tensors=layers.fused,
        norm_bias=True,
        ffn_scale=0.03,
    ),
}
