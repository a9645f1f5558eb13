"""Decoders whose layers have attention and one feed-forward part."""

from __future__ import annotations

from tests.tiny.files import Tiny
from tests.tiny.parts import MULTIPLIERS, YARN
from tests.tiny.tensors import layers

EXPANDED = {
    "attention.kv_lora_rank": 64,
    "attention.q_lora_rank": 32,
    "attention.key_length": 24,
    "rope.dimension_count": 8,
}

DENSE = {
    "llama": Tiny("llama"),
    "llama-untied": Tiny("llama", layers=3, kv_heads=6, tied=False),
    "llama-rope-factors": Tiny("llama", freq_factors=True, head_dim=32),
    "llama-window": Tiny("llama", metadata={"attention.sliding_window": 37}),  # which nobody heeds
    "llama-linear": Tiny("llama", metadata={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "llama-yarn": Tiny(
        "llama",
        head_dim=64,
        metadata=YARN,
    ),
    "gemma2": Tiny(
        "gemma2",
        layers=3,
        head_dim=32,
        post_norm=True,
        metadata={
            "attention.sliding_window": 37,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 6.0,
        },
    ),
    "gemma3": Tiny(
        "gemma3",
        layers=7,
        head_dim=32,
        qk_norm=True,
        post_norm=True,
        metadata={
            "attention.sliding_window": 37,
            "rope.freq_base_swa": 5000.0,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
    ),
    "gemma3-full": Tiny(
        "gemma3", qk_norm=True, post_norm=True, tied=False, metadata={"final_logit_softcapping": 5.0}
    ),
    "qwen2": Tiny("qwen2", qkv_bias=True),
    "qwen2vl": Tiny(
        "qwen2vl",
        qkv_bias=True,
        # llama.cpp takes 0 for the epsilon of this architecture, whatever the file has.
        metadata={"rope.dimension_sections": [3, 3, 2, 0], "attention.layer_norm_rms_epsilon": 1e-15},
    ),
    "qwen3": Tiny("qwen3", qk_norm=True, head_dim=32),
    "seed_oss": Tiny("seed_oss", qkv_bias=True, layer_tensors=layers.seed_oss),
    "ernie4_5": Tiny("ernie4_5"),
    "internlm2": Tiny("internlm2", tied=False),
    "smollm3": Tiny("smollm3", layers=5),
    "olmo2": Tiny("olmo2", tied=False, layer_tensors=layers.olmo2),
    "olmo3": Tiny(
        "olmo2",
        layers=5,
        tied=False,
        metadata=YARN | {"attention.sliding_window": 37},
        layer_tensors=layers.olmo2,
    ),
    "exaone4": Tiny("exaone4", qk_norm=True, layer_tensors=layers.exaone4, embedding_scale=3.0),
    "exaone4-windows": Tiny(
        "exaone4",
        layers=64,
        width=64,
        heads=4,
        kv_heads=1,
        ffn=32,
        qk_norm=True,
        metadata={"attention.sliding_window": 37, "attention.sliding_window_pattern": 4},
        layer_tensors=layers.exaone4,
    ),
    "glm4": Tiny(
        "glm4",
        qkv_bias=True,
        post_norm=True,
        metadata={"rope.dimension_count": 8},
        layer_tensors=layers.glm4,
    ),
    "gemma": Tiny("gemma", head_dim=32),
    "granite": Tiny("granite", metadata=MULTIPLIERS),
    "granite_swa": Tiny(
        "granite_swa",
        layers=3,
        metadata=MULTIPLIERS
        | {
            "attention.rope_pattern": [True, False, True],
            "attention.sliding_window": 37,
            "attention.sliding_window_pattern": [True, False, True],
        },
        layer_tensors=layers.granite_swa,
    ),
    "phi3": Tiny(
        "phi3",
        tied=False,
        long_factors=True,
        metadata={
            "attention.sliding_window": 37,  # which nobody heeds
            "rope.scaling.original_context_length": 512,
            "rope.scaling.attn_factor": 1.19,
        },
        layer_tensors=layers.phi3,
    ),
    "phi3-short": Tiny(
        "phi3",
        long_factors=True,
        metadata={"rope.scaling.original_context_length": 2048},
        layer_tensors=layers.phi3,
    ),
    "minicpm": Tiny("minicpm", layers=3),
    "minicpm-multipliers": Tiny(
        "minicpm", metadata={"embedding_scale": 1.5, "logit_scale": 1.5, "residual_scale": 0.6}
    ),
    "arcee": Tiny("arcee", layer_tensors=layers.without_gate),
    "hunyuan-dense": Tiny("hunyuan-dense", qk_norm=True),
    "hunyuan_vl": Tiny(
        "hunyuan_vl",
        qk_norm=True,
        metadata={"rope.scaling.alpha": 50.0, "rope.dimension_sections": [3, 3, 2, 0]},
    ),
    "exaone": Tiny("exaone", freq_factors=True),
    "xverse": Tiny("xverse", tied=False),
    "qwen3vl": Tiny(
        "qwen3vl",
        qk_norm=True,
        metadata={"rope.dimension_sections": [3, 3, 2, 0]},
    ),
    "mistral3": Tiny(
        "mistral3",
        tied=False,
        head_dim=64,
        metadata=YARN
        | {
            "attention.temperature_scale": 0.4,
            "rope.scaling.original_context_length": 64,
            "rope.scaling.yarn_beta_fast": 8.0,
            "rope.scaling.yarn_beta_slow": 2.0,
            "rope.scaling.yarn_log_multiplier": 0.5,
        },
    ),
    "apertus": Tiny(
        "apertus",
        tied=False,
        qk_norm=True,
        freq_factors=True,
        shared_metadata={
            "xielu.alpha_n": [0.3, -0.2],
            "xielu.alpha_p": [0.1, 0.5],
            "xielu.beta": [0.5, 0.4],
            "xielu.eps": [-1e-6, -1e-6],
        },
        layer_tensors=layers.without_gate,
    ),
    "chatglm": Tiny("chatglm", metadata={"rope.dimension_count": 8}, layer_tensors=layers.chatglm),
    "deci": Tiny(
        "deci",
        layers=5,
        metadata={
            "attention.head_count": [6, 6, 0, 6, 6],
            "attention.head_count_kv": [2, 0, 0, 3, 1],
            "feed_forward_length": [64, 160, 96, 96, 96],
        },
        layer_tensors=layers.deci,
    ),
    "maincoder": Tiny("maincoder", qk_norm=True),
    "olmo": Tiny(
        "olmo",
        output_norm="",
        metadata={"attention.layer_norm_epsilon": 1e-5, "attention.clamp_kqv": 1.2},
        layer_tensors=layers.olmo,
    ),
    "openelm": Tiny(
        "openelm",
        qk_norm=True,
        metadata={
            "attention.head_count": [4, 6],
            "attention.head_count_kv": [1, 2],
            "feed_forward_length": [64, 96],
        },
        layer_tensors=layers.openelm,
    ),
    "paddleocr": Tiny("paddleocr", metadata={"rope.dimension_sections": [3, 3, 2, 0]}),
    "pangu-embedded": Tiny("pangu-embedded", qkv_bias=True, layer_tensors=layers.pangu),
    "plamo": Tiny("plamo", tied=False, layer_tensors=layers.plamo),
    "qwen": Tiny(
        "qwen", kv_heads=6, tied=False, metadata={"feed_forward_length": 320}, layer_tensors=layers.qwen
    ),
    "minicpm3": Tiny("minicpm3", kv_heads=6, metadata=EXPANDED, layer_tensors=layers.minicpm3),
    "plm": Tiny("plm", kv_heads=6, metadata=EXPANDED, layer_tensors=layers.plm),
    "bitnet": Tiny("bitnet", layer_tensors=layers.bitnet),
    "spark2_5": Tiny(
        "spark2_5",
        layers=5,
        metadata=YARN
        | {
            "attention.head_count": [6, 4, 4, 2, 6],
            "attention.sliding_window": 37,
            "attention.sliding_window_pattern": [True, True, False, True, False],
            "rope.freq_base_swa": 5000.0,
        },
        layer_tensors=layers.spark2_5,
        ffn_scale=0.03,
    ),
    "plamo3": Tiny(
        "plamo3",
        layers=9,
        qk_norm=True,
        metadata={"attention.sliding_window": 37, "rope.freq_base_swa": 5000.0},
        layer_tensors=layers.plamo3,
        embedding_scale=3.0,
    ),
    "nanbeige": Tiny("nanbeige", metadata={"num_loops": 3}),
    "nanbeige-unbroken": Tiny(
        "nanbeige", tied=False, metadata={"num_loops": 2, "skip_loop_final_norm": True}
    ),
    "talkie": Tiny(
        "talkie",
        layers=3,
        tied=False,
        output_norm="",
        metadata={"logit_scale": 0.5},
        layer_tensors=layers.talkie,
    ),
}
