"""Models whose norms take away the mean."""

from __future__ import annotations

from typing import Any

from tests.tiny.files import Tiny
from tests.tiny.tensors import layers

LAYER_NORM = {"attention.layer_norm_epsilon": 1e-4}


def with_norm_biases(architecture: str, *, metadata: dict[str, Any] | None = None, **fields: Any) -> Tiny:
    """Its feed-forward parts add little, as encoders' do: llama.cpp rounds GELU to half precision."""
    common = {"norm_bias": True, "ffn_scale": 0.03, "metadata": LAYER_NORM | (metadata or {})}
    return Tiny(architecture, **(common | fields))


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
    "starcoder2": with_norm_biases(
        "starcoder2",
        layer_tensors=layers.with_biases,
    ),
    "stablelm": with_norm_biases(
        "stablelm",
        tied=False,
        qkv_bias=True,
        metadata={"rope.dimension_count": 8},
        layer_tensors=layers.stablelm,
        ffn_scale=1.0,
    ),
    "stablelm-12b": with_norm_biases(
        "stablelm", tied=False, layer_tensors=layers.stablelm_12b, ffn_scale=1.0
    ),
    "gptneox": with_norm_biases(
        "gptneox",
        tied=False,
        kv_heads=6,
        metadata={"rope.dimension_count": 8, "use_parallel_residual": True},
        layer_tensors=layers.fused,
    ),
    "gptneox-sequential": with_norm_biases(
        "gptneox",
        tied=False,
        kv_heads=6,
        metadata={"use_parallel_residual": False},
        layer_tensors=layers.fused,
    ),
    "phi2": with_norm_biases(
        "phi2",
        tied=False,
        kv_heads=6,
        layer_tensors=layers.phi2,
        output_bias=True,
    ),
    "falcon": with_norm_biases(
        "falcon",
        kv_heads=1,
        layer_tensors=layers.falcon,
    ),
    "nemotron": with_norm_biases(
        "nemotron",
        tied=False,
        metadata={"rope.dimension_count": 8},
        layer_tensors=layers.with_biases,
        ffn_scale=0.2,
    ),
    "orion": with_norm_biases("orion", tied=False, layer_tensors=layers.stablelm, ffn_scale=1.0),
    "jais2": with_norm_biases(
        "jais2",
        tied=False,
        qkv_bias=True,
        layer_tensors=layers.with_biases,
        ffn_scale=0.2,
    ),
    "codeshell": with_norm_biases(
        "codeshell",
        tied=False,
        layer_tensors=layers.fused,
    ),
    "gpt2": with_norm_biases(
        "gpt2",
        kv_heads=6,
        positions=True,
        layer_tensors=layers.fused,
    ),
    "starcoder": with_norm_biases(
        "starcoder",
        kv_heads=1,
        tied=False,
        positions=True,
        layer_tensors=layers.fused,
    ),
}
