"""Tensors of one layer of a tiny model with experts: name -> shape in numpy order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.tiny.tensors.layers import (
    Tensors,
    attention,
    experts,
    fused_without_biases,
    gated,
    is_head,
    transformer,
    with_experts,
)

if TYPE_CHECKING:
    from tests.tiny.files import Tiny


def qwen2moe(tiny: Tiny, layer: int) -> Tensors:
    return with_experts(tiny, layer) | gated(tiny, "_shexp") | {"ffn_gate_inp_shexp.weight": (tiny.width,)}


def gpt_oss(tiny: Tiny, _: int) -> Tensors:
    norms: Tensors = {"attn_norm.weight": (tiny.width,), "post_attention_norm.weight": (tiny.width,)}
    tensors = norms | attention(tiny) | experts(tiny)
    biases = {
        f"{name}.bias": tensors[f"{name}.weight"][:-1]
        for name in ("attn_output", "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
    }
    return tensors | biases | {"attn_sinks.weight": (tiny.heads,)}


def deepseek2(tiny: Tiny, layer: int) -> Tensors:
    of = tiny.metadata
    rank, rotary_dim = of["attention.kv_lora_rank"], of["rope.dimension_count"]
    key_dim, value_dim = of["attention.key_length_mla"], of["attention.value_length_mla"]
    tensors: Tensors = {
        "attn_norm.weight": (tiny.width,),
        "attn_kv_a_mqa.weight": (rank + rotary_dim, tiny.width),
        "attn_kv_a_norm.weight": (rank,),
        "attn_k_b.weight": (tiny.heads, rank, key_dim - rotary_dim),
        "attn_v_b.weight": (tiny.heads, value_dim, rank),
        "attn_output.weight": (tiny.width, tiny.heads * value_dim),
        "ffn_norm.weight": (tiny.width,),
    }
    if q_rank := of.get("attention.q_lora_rank"):
        tensors |= {"attn_q_a.weight": (q_rank, tiny.width), "attn_q_a_norm.weight": (q_rank,)}
        tensors["attn_q_b.weight"] = (tiny.heads * key_dim, q_rank)
    else:
        tensors["attn_q.weight"] = (tiny.heads * key_dim, tiny.width)
    if layer < of["leading_dense_block_count"]:
        return tensors | gated(tiny)
    if of.get("expert_gating_func") == 2:
        tensors["exp_probs_b.bias"] = (of["expert_count"],)
    return tensors | experts(tiny) | gated(replace(tiny, ffn=of["expert_feed_forward_length"]), "_shexp")


def mixture(tiny: Tiny, layer: int) -> Tensors:
    """Experts and one that all tokens share, in all layers but the first."""
    if layer < tiny.metadata["leading_dense_block_count"]:
        return transformer(tiny, layer)
    tensors = with_experts(tiny, layer) | gated(
        replace(tiny, ffn=tiny.metadata["expert_feed_forward_length"]), "_shexp"
    )
    if tiny.choice_bias:
        tensors |= {"exp_probs_b.bias": (tiny.metadata["expert_count"],)}
    return tensors


def glm4moe(tiny: Tiny, layer: int) -> Tensors:
    tensors = mixture(tiny, layer)
    return tensors | {"post_attention_norm.weight": tensors.pop("ffn_norm.weight")}


def bailingmoe2(tiny: Tiny, layer: int) -> Tensors:
    size, tensors = (tiny.heads + 2 * tiny.kv_heads) * tiny.head_dim, mixture(tiny, layer)
    for part in "qkv":
        del tensors[f"attn_{part}.weight"]
    return tensors | {"attn_qkv.weight": (size, tiny.width)}


def olmoe(tiny: Tiny, layer: int) -> Tensors:
    q, kv = tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim
    return with_experts(tiny, layer) | {"attn_q_norm.weight": (q,), "attn_k_norm.weight": (kv,)}


def phimoe(tiny: Tiny, layer: int) -> Tensors:
    tensors, width = with_experts(tiny, layer), (tiny.width,)
    names = ("attn_norm", "ffn_norm", "attn_output")
    return tensors | {f"{name}.bias": width for name in names}


def dbrx(tiny: Tiny, layer: int) -> Tensors:
    tensors = fused_without_biases(tiny, layer) | experts(tiny)
    for name in ("gate", "up", "down"):
        del tensors[f"ffn_{name}.weight"]
    return tensors | {"attn_output_norm.weight": tensors.pop("ffn_norm.weight")}


def arctic(tiny: Tiny, layer: int) -> Tensors:
    dense = transformer(replace(tiny, ffn=tiny.width), layer)
    return dense | experts(tiny) | {"ffn_norm_exps.weight": (tiny.width,)}


def grok(tiny: Tiny, layer: int) -> Tensors:
    """Of Grok 1: without a dense part."""
    names = ("attn_output_norm.weight", "layer_output_norm.weight")
    return with_experts(tiny, layer) | dict.fromkeys(names, (tiny.width,))


def grok_2(tiny: Tiny, layer: int) -> Tensors:
    names = ("attn_output_norm.weight", "post_ffw_norm.weight")
    return with_experts(tiny, layer) | gated(tiny) | dict.fromkeys(names, (tiny.width,))


def afmoe(tiny: Tiny, layer: int) -> Tensors:
    q = tiny.heads * tiny.head_dim
    return mixture(tiny, layer) | {
        "attn_gate.weight": (q, tiny.width),
        "post_attention_norm.weight": (tiny.width,),
        "post_ffw_norm.weight": (tiny.width,),
    }


def laguna(tiny: Tiny, layer: int) -> Tensors:
    """A gate for each head."""
    heads = tiny.metadata["attention.head_count"][layer]
    of_layer = replace(tiny, heads=heads)
    return mixture(of_layer, layer) | {"attn_gate.weight": (heads, tiny.width)}


def exaone_moe(tiny: Tiny, layer: int) -> Tensors:
    """The prediction head's layer has no experts."""
    return transformer(tiny, layer) if is_head(tiny, layer) else mixture(tiny, layer)


def step35(tiny: Tiny, layer: int) -> Tensors:
    """A gate for each head."""
    heads, kv_heads = (tiny.metadata[f"attention.head_count{kind}"][layer] for kind in ("", "_kv"))
    of_layer = replace(tiny, heads=heads, kv_heads=kv_heads)
    return mixture(of_layer, layer) | {"attn_gate.weight": (heads, tiny.width)}


def mimo2(tiny: Tiny, layer: int) -> Tensors:
    """Values are narrower than keys; the first layers have q, k and v in one matrix."""
    of = tiny.metadata
    heads, kv_heads = (of[f"attention.head_count{kind}"][layer] for kind in ("", "_kv"))
    dim, value_dim = tiny.head_dim, of["attention.value_length"]
    of_layer = replace(tiny, heads=heads, kv_heads=kv_heads)
    parts = dict(zip("qkv", (heads * dim, kv_heads * dim, kv_heads * value_dim), strict=True))
    tensors = {name: shape for name, shape in mixture(of_layer, layer).items() if "_shexp" not in name}
    tensors |= {f"attn_{part}.weight": (size, tiny.width) for part, size in parts.items()}
    tensors["attn_output.weight"] = (tiny.width, heads * value_dim)
    if layer < 2:
        for part in "qkv":
            del tensors[f"attn_{part}.weight"]
        tensors["attn_qkv.weight"] = (sum(parts.values()), tiny.width)
    return tensors | ({"attn_sinks.weight": (heads,)} if layer % 2 else {})


def minimax_m2(tiny: Tiny, layer: int) -> Tensors:
    return olmoe(tiny, layer) | {"exp_probs_b.bias": (tiny.metadata["expert_count"],)}


def hy_v3(tiny: Tiny, layer: int) -> Tensors:
    """The choice's bias has a name without an ending."""
    tensors = mixture(tiny, layer)
    if layer >= tiny.metadata["leading_dense_block_count"]:
        tensors["exp_probs_b"] = (tiny.metadata["expert_count"],)
    return tensors


def cohere2moe(tiny: Tiny, layer: int) -> Tensors:
    """One norm, which both halves read; perhaps no shared expert."""
    shares = "expert_shared_count" in tiny.metadata
    left_out = ("ffn_norm.",) if shares else ("ffn_norm.", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp")
    return {name: shape for name, shape in mixture(tiny, layer).items() if not name.startswith(left_out)}


def granite_swa(tiny: Tiny, layer: int) -> Tensors:
    """Gate and up of the expert that all tokens share are one matrix."""
    hidden = tiny.metadata["expert_shared_feed_forward_length"]
    return with_experts(tiny, layer) | {
        "attn_sinks.weight": (tiny.heads,),
        "ffn_up_shexp.weight": (2 * hidden, tiny.width),
        "ffn_down_shexp.weight": (tiny.width, hidden),
    }
