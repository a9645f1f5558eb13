"""Models with experts, some of whose layers see the latest tokens only."""

from __future__ import annotations

from tests.tiny.files import Tiny
from tests.tiny.parts import EXPERTS, SHARED, YARN
from tests.tiny.tensors import layers, mixture_layers

WINDOW = {"attention.sliding_window": 37}

WINDOWED = {
    "gpt-oss": Tiny(
        "gpt-oss",
        layers=3,
        qkv_bias=True,
        tied=False,
        metadata=EXPERTS | YARN | {"attention.sliding_window": 37},
        layer_tensors=mixture_layers.gpt_oss,
    ),
    "smallthinker": Tiny(
        "smallthinker",
        layers=5,
        metadata=EXPERTS | {"expert_gating_func": 2, "attention.sliding_window": 4096},
        layer_tensors=layers.with_experts,
    ),
    "smallthinker-full": Tiny(
        "smallthinker",
        layers=3,
        metadata=EXPERTS | {"expert_gating_func": 1},
        layer_tensors=layers.with_experts,
    ),
    "mellum": Tiny(
        "mellum",
        layers=5,
        tied=False,
        qk_norm=True,
        metadata=EXPERTS | YARN | {"attention.sliding_window": 37},
        layer_tensors=layers.with_experts,
    ),
    "afmoe": Tiny(
        "afmoe",
        layers=5,
        tied=False,
        qk_norm=True,
        choice_bias=True,
        metadata=SHARED | {"attention.sliding_window": 37, "expert_weights_norm": True},
        layer_tensors=mixture_layers.afmoe,
        embedding_scale=0.3,
    ),
    "laguna": Tiny(
        "laguna",
        layers=5,
        tied=False,
        qk_norm=True,
        choice_bias=True,
        metadata=SHARED
        | YARN
        | {
            "attention.head_count": [6, 4, 4, 2, 6],
            "attention.sliding_window": 37,
            "expert_weights_norm": True,
            "rope.dimension_count": 8,
            "rope.dimension_count_swa": 16,
            "rope.freq_base_swa": 5000.0,
        },
        layer_tensors=mixture_layers.laguna,
        embedding_scale=3.0,
    ),
    "cohere2moe": Tiny(
        "cohere2moe",
        layers=5,
        metadata=SHARED
        | WINDOW
        | {"attention.layer_norm_epsilon": 1e-4, "logit_scale": 0.25, "expert_weights_norm": True},
        layer_tensors=mixture_layers.cohere2moe,
        embedding_scale=3.0,
    ),
    "cohere2moe-rms": Tiny(
        "cohere2moe",
        layers=4,
        metadata=EXPERTS
        | WINDOW
        | {"leading_dense_block_count": 2, "logit_scale": 0.25, "attention.sliding_window_pattern": 2},
        layer_tensors=mixture_layers.cohere2moe,
        embedding_scale=3.0,
    ),
    "exaone-moe": Tiny(
        "exaone-moe",
        layers=6,
        tied=False,
        qk_norm=True,
        choice_bias=True,
        metadata=SHARED
        | WINDOW
        | {"expert_gating_func": 2, "expert_weights_norm": True, "nextn_predict_layers": 1},
        layer_tensors=mixture_layers.exaone_moe,
        embedding_scale=3.0,
    ),
    "step35": Tiny(
        "step35",
        layers=6,
        tied=False,
        qk_norm=True,
        choice_bias=True,
        freq_factors=True,
        metadata=SHARED
        | WINDOW
        | {
            "attention.head_count": [6, 4, 4, 2, 6, 4],
            "attention.head_count_kv": [2, 1, 2, 2, 2, 2],
            "attention.sliding_window_pattern": [True, False, True, True, True, False],
            "expert_shared_feed_forward_length": 64,
            "expert_weights_norm": True,
            "nextn_predict_layers": 1,
            "rope.freq_base_swa": 5000.0,
            "swiglu_clamp_exp": [0.0, 0.2, 0.0, 0.3, 0.1, 0.0],
            "swiglu_clamp_shexp": [0.2, 0.0, 0.3, 0.1, 0.2, 0.0],
        },
        layer_tensors=mixture_layers.step35,
        embedding_scale=3.0,
    ),
    "maple": Tiny(
        "maple",
        layers=4,
        tied=False,
        qk_norm=True,
        metadata=EXPERTS
        | WINDOW
        | {
            "attention.sliding_window_pattern": [True, False, True, True],
            "rope.freq_base_swa": 5000.0,
            "swiglu_clamp_exp": 0.2,
        },
        layer_tensors=layers.with_experts,
        embedding_scale=3.0,
    ),
    "mimo2": Tiny(
        "mimo2",
        layers=5,
        tied=False,
        head_dim=24,
        choice_bias=True,
        metadata=EXPERTS
        | WINDOW
        | {
            "attention.head_count": [6, 4, 4, 4, 6],
            "attention.head_count_kv": [2, 1, 2, 4, 2],
            "attention.sliding_window_pattern": [True, False, True, True, False],
            "attention.value_length": 16,
            "attention.value_scale": 0.7,
            "expert_gating_func": 2,
            "leading_dense_block_count": 1,
            "rope.dimension_count": 8,
            "rope.freq_base_swa": 5000.0,
        },
        layer_tensors=mixture_layers.mimo2,
        embedding_scale=3.0,
    ),
}
