"""Gemma's models whose layers differ in their heads, or share what they keep."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.tiny.files import Tiny
from tests.tiny.parts import EXPERTS
from tests.tiny.tensors.layers import Tensors, experts, gated, transformer

WINDOWED_HEAD = 16
OWN = "embedding_length_per_layer_input"  # values of a layer's own embedding

# Of Gemma 3n, in which llama.cpp has the first 20 layers keep keys and values, whatever the file says.
OWN_3N, STREAMS, LAYERS_3N = 256, 4, 23

# The fourth and fifth keep for those behind them.
SHARED_WINDOWS = [True, True, False, True, False, True, True, False]
SHARED = 3


def gemma4(tiny: Tiny, layer: int) -> Tensors:
    """Heads of two kinds; layers without a window have no values but their keys."""
    of = tiny.metadata
    is_windowed = of["attention.sliding_window_pattern"][layer]
    kv_heads = of["attention.head_count_kv"][layer]
    size = replace(tiny, kv_heads=kv_heads, head_dim=_head_dim(tiny, is_windowed))
    tensors = transformer(size, layer) | {"layer_output_scale.weight": (1,)}
    if not is_windowed:
        del tensors["attn_v.weight"]
    return tensors


def gemma4_experts(tiny: Tiny, layer: int) -> Tensors:
    tensors = gemma4(tiny, layer) | experts(tiny)
    gate = tensors.pop("ffn_gate_exps.weight")
    del tensors["ffn_up_exps.weight"]
    norms = ("post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2")
    return (
        tensors
        | {f"{name}.weight": (tiny.width,) for name in norms}
        | {
            "ffn_gate_up_exps.weight": (gate[0], 2 * gate[1], gate[2]),
            "ffn_gate_inp.scale": (tiny.width,),
            "ffn_down_exps.scale": (gate[0],),
        }
    )


def gemma4_small(tiny: Tiny, layer: int) -> Tensors:
    """Later layers have wider feed-forward parts, and keys and values that nobody reads."""
    ffn, own = tiny.metadata["feed_forward_length"][layer], tiny.metadata[OWN]
    head_dim = _head_dim(tiny, SHARED_WINDOWS[layer])
    tensors = transformer(replace(tiny, head_dim=head_dim, ffn=ffn), layer)
    return tensors | {
        "layer_output_scale.weight": (1,),
        "inp_gate.weight": (own, tiny.width),
        "proj.weight": (tiny.width, own),
        "post_norm.weight": (tiny.width,),
    }


def _head_dim(tiny: Tiny, is_windowed: bool) -> int:
    head_dim: int = tiny.metadata["attention.key_length_swa"] if is_windowed else tiny.head_dim
    return head_dim


def assistant(tiny: Tiny, layer: int) -> Tensors:
    """Gemma 4's drafter: nothing is kept."""
    head_dim = _head_dim(tiny, tiny.metadata["attention.sliding_window_pattern"][layer])
    q, width = tiny.heads * head_dim, tiny.width
    norms: Tensors = {
        f"{name}.weight": (width,)
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    }
    return (
        norms
        | gated(tiny)
        | {
            "attn_q.weight": (q, width),
            "attn_q_norm.weight": (head_dim,),
            "attn_output.weight": (width, q),
            "layer_output_scale.weight": (1,),
        }
    )


def per_layer_embeddings(tiny: Tiny, vocab: int) -> Tensors:
    own = tiny.metadata[OWN]
    return {
        "per_layer_token_embd.weight": (vocab, tiny.layers * own),
        "per_layer_model_proj.weight": (tiny.layers * own, tiny.width),
        "per_layer_proj_norm.weight": (own,),
    }


def gemma3n(tiny: Tiny, layer: int) -> Tensors:
    width, rank = tiny.width, 64
    return transformer(tiny, layer) | {
        "inp_gate.weight": (OWN_3N, width),
        "proj.weight": (width, OWN_3N),
        "post_norm.weight": (width,),
        "altup_correct_coef.weight": (STREAMS, STREAMS),
        "altup_correct_scale.weight": (width,),
        "altup_predict_coef.weight": (STREAMS**2, STREAMS),
        "altup_router.weight": (STREAMS, width),
        "altup_router_norm.weight": (width,),
        "laurel_l.weight": (rank, width),
        "laurel_r.weight": (width, rank),
        "laurel_post_norm.weight": (width,),
    }


def streams(tiny: Tiny, vocab: int) -> Tensors:
    return per_layer_embeddings(tiny, vocab) | {
        "altup_proj.weight": (STREAMS - 1, tiny.width, tiny.width),
        "altup_unembd_proj.weight": (STREAMS - 1, tiny.width, tiny.width),
    }


HEADS = {
    "attention.key_length_swa": WINDOWED_HEAD,
    "attention.value_length_swa": WINDOWED_HEAD,
    "rope.dimension_count_swa": WINDOWED_HEAD,
    "rope.freq_base": 50000.0,
    "rope.freq_base_swa": 5000.0,
    "attention.sliding_window": 37,
    "final_logit_softcapping": 6.0,
    OWN: 0,
    "attention.shared_kv_layers": 0,
}
GEMMA4 = Tiny(
    "gemma4",
    layers=4,
    head_dim=32,
    qk_norm=True,
    post_norm=True,
    freq_factors=True,
    ffn_scale=0.1,
    metadata=HEADS
    | {
        "attention.sliding_window_pattern": [True, True, False, True],
        "attention.head_count_kv": [3, 3, 2, 3],
    },
    layer_tensors=gemma4,
)

GEMMAS = {
    "gemma4": GEMMA4,
    "gemma4-experts": replace(
        GEMMA4, metadata=GEMMA4.metadata | EXPERTS, layer_tensors=gemma4_experts, tied=False
    ),
    "gemma4-small": replace(
        GEMMA4,
        layers=len(SHARED_WINDOWS),
        metadata=HEADS
        | {
            "attention.sliding_window_pattern": SHARED_WINDOWS,
            "attention.head_count_kv": [2] * len(SHARED_WINDOWS),
            "attention.shared_kv_layers": SHARED,
            OWN: 32,
            "feed_forward_length": [160] * (len(SHARED_WINDOWS) - SHARED) + [192] * SHARED,
        },
        layer_tensors=gemma4_small,
        model_tensors=per_layer_embeddings,
    ),
    "gemma3n": Tiny(
        "gemma3n",
        layers=LAYERS_3N,
        width=64,
        heads=4,
        head_dim=32,
        ffn=96,
        qk_norm=True,
        post_norm=True,
        ffn_scale=0.1,
        attention_scale=0.2,
        metadata={
            "attention.sliding_window": 37,
            "attention.sliding_window_pattern": [layer % 5 != 4 for layer in range(LAYERS_3N)],
            "attention.shared_kv_layers": LAYERS_3N - 20,
            "activation_sparsity_scale": [1.6448533535003662] * 10 + [-math.inf] * (LAYERS_3N - 10),
            "altup.num_inputs": STREAMS,
            OWN: OWN_3N,
            "rope.freq_base": 50000.0,
        },
        layer_tensors=gemma3n,
        model_tensors=streams,
    ),
}
