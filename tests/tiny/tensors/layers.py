"""Tensors of one layer of a tiny model, by kind of layer: name -> shape in numpy order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.tiny.files import Tiny

Tensors = dict[str, tuple[int, ...]]


def is_head(tiny: Tiny, layer: int) -> bool:
    """Whether it predicts further tokens."""
    return layer >= tiny.layers - tiny.metadata.get("nextn_predict_layers", 0)


def head(tiny: Tiny, vocab_size: int) -> Tensors:
    """What a prediction head has besides a layer; with embeddings and an output of its own in some."""
    tensors: Tensors = {f"nextn.{name}.weight": (tiny.width,) for name in ("enorm", "hnorm")}
    tensors["nextn.eh_proj.weight"] = (tiny.width, 2 * tiny.width)
    if tiny.tied:
        return tensors
    matrices = ("nextn.embed_tokens.weight", "nextn.shared_head_head.weight")
    tensors |= dict.fromkeys(matrices, (vocab_size, tiny.width))
    return tensors | {"nextn.shared_head_norm.weight": (tiny.width,)}


def transformer(tiny: Tiny, _: int) -> Tensors:
    tensors: Tensors = {"attn_norm.weight": (tiny.width,)} | _projections(tiny)
    tensors |= {"ffn_norm.weight": (tiny.width,)} | gated(tiny)
    if tiny.post_norm:
        tensors |= {"post_attention_norm.weight": (tiny.width,), "post_ffw_norm.weight": (tiny.width,)}
    return tensors | _attention_vectors(tiny)


def with_experts(tiny: Tiny, _: int) -> Tensors:
    norms: Tensors = {"attn_norm.weight": (tiny.width,), "ffn_norm.weight": (tiny.width,)}
    return norms | attention(tiny) | experts(tiny)


def seed_oss(tiny: Tiny, _: int) -> Tensors:
    norms: Tensors = {"attn_norm.weight": (tiny.width,), "post_attention_norm.weight": (tiny.width,)}
    return norms | attention(tiny) | gated(tiny)


def exaone4(tiny: Tiny, _: int) -> Tensors:
    norms: Tensors = {"post_attention_norm.weight": (tiny.width,), "post_ffw_norm.weight": (tiny.width,)}
    return norms | attention(tiny) | gated(tiny)


def olmo2(tiny: Tiny, layer: int) -> Tensors:
    """q and k are normalised over all their heads."""
    q, kv = tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim
    return exaone4(tiny, layer) | {"attn_q_norm.weight": (q,), "attn_k_norm.weight": (kv,)}


def glm4(tiny: Tiny, layer: int) -> Tensors:
    """Gate and up are one matrix."""
    tensors = transformer(tiny, layer) | {"ffn_up.weight": (2 * tiny.ffn, tiny.width)}
    del tensors["ffn_gate.weight"]
    return tensors


def one_norm(tiny: Tiny, _: int) -> Tensors:
    """Both halves of the layer read it."""
    return {"attn_norm.weight": (tiny.width,)} | attention(tiny) | gated(tiny)


def stablelm(tiny: Tiny, layer: int) -> Tensors:
    norms: Tensors = {f"{name}_norm.bias": (tiny.width,) for name in ("attn", "ffn")}
    return norms | transformer(tiny, layer)


def stablelm_12b(tiny: Tiny, layer: int) -> Tensors:
    return one_norm(tiny, layer) | {
        "attn_norm.bias": (tiny.width,),
        "attn_q_norm.weight": (tiny.heads, tiny.head_dim),
        "attn_k_norm.weight": (tiny.kv_heads, tiny.head_dim),
    }


def with_biases(tiny: Tiny, layer: int) -> Tensors:
    """StarCoder 2's, whose feed-forward part has no gate."""
    tensors = transformer(tiny, layer)
    del tensors["ffn_gate.weight"]
    names = [name.removesuffix(".weight") for name in tensors if name.endswith(".weight")]
    return tensors | {f"{name}.bias": tensors[f"{name}.weight"][:1] for name in names}


def fused(tiny: Tiny, layer: int) -> Tensors:
    """GPT-NeoX's: q, k and v in one matrix."""
    tensors = with_biases(tiny, layer)
    size = (tiny.heads + 2 * tiny.kv_heads) * tiny.head_dim
    split = {name for name in tensors if name.startswith(("attn_q.", "attn_k.", "attn_v."))}
    kept = {name: shape for name, shape in tensors.items() if name not in split}
    return kept | {"attn_qkv.weight": (size, tiny.width), "attn_qkv.bias": (size,)}


def phi2(tiny: Tiny, layer: int) -> Tensors:
    return {name: shape for name, shape in fused(tiny, layer).items() if not name.startswith("ffn_norm")}


def falcon(tiny: Tiny, layer: int) -> Tensors:
    """Of the 40B: biases of norms alone."""
    tensors = phi2(tiny, layer) | {f"attn_norm_2.{kind}": (tiny.width,) for kind in ("weight", "bias")}
    return {name: shape for name, shape in tensors.items() if "norm" in name or name.endswith("weight")}


def attention(tiny: Tiny, *, query_parts: int = 1) -> Tensors:
    """query_parts: 2 where each head's query comes with a gate."""
    return _projections(tiny, query_parts) | _attention_vectors(tiny)


def _projections(tiny: Tiny, query_parts: int = 1) -> Tensors:
    q, kv = tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim
    return {
        "attn_q.weight": (q * query_parts, tiny.width),
        "attn_k.weight": (kv, tiny.width),
        "attn_v.weight": (kv, tiny.width),
        "attn_output.weight": (tiny.width, q),
    }


def _attention_vectors(tiny: Tiny) -> Tensors:
    q, kv = tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim
    tensors: Tensors = {}
    if tiny.qkv_bias:
        tensors |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
    if tiny.qk_norm:
        tensors |= {"attn_q_norm.weight": (tiny.head_dim,), "attn_k_norm.weight": (tiny.head_dim,)}
    return tensors


def gated(tiny: Tiny, suffix: str = "") -> Tensors:
    return {
        f"ffn_gate{suffix}.weight": (tiny.ffn, tiny.width),
        f"ffn_up{suffix}.weight": (tiny.ffn, tiny.width),
        f"ffn_down{suffix}.weight": (tiny.width, tiny.ffn),
    }


def experts(tiny: Tiny) -> Tensors:
    count, ffn = tiny.metadata["expert_count"], tiny.metadata["expert_feed_forward_length"]
    return {
        "ffn_gate_inp.weight": (count, tiny.width),
        "ffn_gate_exps.weight": (count, ffn, tiny.width),
        "ffn_up_exps.weight": (count, ffn, tiny.width),
        "ffn_down_exps.weight": (count, tiny.width, ffn),
    }


def phi3(tiny: Tiny, layer: int) -> Tensors:
    """q, k and v in one matrix, gate and up in another."""
    size, tensors = (tiny.heads + 2 * tiny.kv_heads) * tiny.head_dim, glm4(tiny, layer)
    split = ("attn_q.", "attn_k.", "attn_v.")
    kept = {name: shape for name, shape in tensors.items() if not name.startswith(split)}
    return kept | {"attn_qkv.weight": (size, tiny.width)}


def without_gate(tiny: Tiny, layer: int) -> Tensors:
    tensors = transformer(tiny, layer)
    del tensors["ffn_gate.weight"]
    return tensors


def bitnet(tiny: Tiny, layer: int) -> Tensors:
    norms: Tensors = {"attn_sub_norm.weight": (tiny.width,), "ffn_sub_norm.weight": (tiny.ffn,)}
    return transformer(tiny, layer) | norms


def fused_without_biases(tiny: Tiny, layer: int) -> Tensors:
    """q, k and v in one matrix."""
    size, tensors = (tiny.heads + 2 * tiny.kv_heads) * tiny.head_dim, transformer(tiny, layer)
    for part in "qkv":
        del tensors[f"attn_{part}.weight"]
    return tensors | {"attn_qkv.weight": (size, tiny.width)}


def mpt(tiny: Tiny, layer: int) -> Tensors:
    tensors = fused_without_biases(tiny, layer)
    del tensors["ffn_gate.weight"]
    return tensors


def jais(tiny: Tiny, layer: int) -> Tensors:
    return fused(tiny, layer) | {"ffn_gate.weight": (tiny.ffn, tiny.width), "ffn_gate.bias": (tiny.ffn,)}


def per_layer(tiny: Tiny, layer: int) -> Tiny:
    """With this layer's numbers of heads and of columns."""
    of = tiny.metadata
    heads, kv_heads = of["attention.head_count"][layer], of["attention.head_count_kv"][layer]
    return replace(tiny, heads=heads, kv_heads=kv_heads, ffn=of["feed_forward_length"][layer])


def deci(tiny: Tiny, layer: int) -> Tensors:
    of_layer = per_layer(tiny, layer)
    tensors: Tensors = {}
    if of_layer.heads:
        tensors = {"attn_norm.weight": (tiny.width,)}
        output = {"attn_output.weight": (tiny.width, tiny.width)}
        tensors |= attention(of_layer) if of_layer.kv_heads else output
    if of_layer.ffn:
        tensors |= {"ffn_norm.weight": (tiny.width,)} | gated(of_layer)
    return tensors


def openelm(tiny: Tiny, layer: int) -> Tensors:
    return fused_without_biases(per_layer(tiny, layer), layer)


def olmo(tiny: Tiny, _: int) -> Tensors:
    return attention(tiny) | gated(tiny)


def chatglm(tiny: Tiny, layer: int) -> Tensors:
    size = (tiny.heads + 2 * tiny.kv_heads) * tiny.head_dim
    return phi3(tiny, layer) | {"attn_qkv.bias": (size,)}


def plamo(tiny: Tiny, layer: int) -> Tensors:
    tensors = transformer(tiny, layer)
    del tensors["ffn_norm.weight"]
    return tensors


def qwen(tiny: Tiny, layer: int) -> Tensors:
    size = (tiny.heads + 2 * tiny.kv_heads) * tiny.head_dim
    return fused_without_biases(tiny, layer) | {"attn_qkv.bias": (size,)}


def pangu(tiny: Tiny, layer: int) -> Tensors:
    return transformer(tiny, layer) | {"attn_output.bias": (tiny.width,)}


def llama4(tiny: Tiny, layer: int) -> Tensors:
    """Experts in every other layer."""
    if layer % 2 == 0:
        return transformer(tiny, layer)
    shared = replace(tiny, ffn=tiny.metadata["expert_feed_forward_length"])
    return with_experts(tiny, layer) | gated(shared, "_shexp")


def minicpm3(tiny: Tiny, _: int) -> Tensors:
    of, value_dim = tiny.metadata, tiny.width // tiny.heads
    rank, rotary_dim, key_dim = (
        of[key] for key in ("attention.kv_lora_rank", "rope.dimension_count", "attention.key_length")
    )
    q_rank = of["attention.q_lora_rank"]
    return {
        "attn_norm.weight": (tiny.width,),
        "attn_q_a.weight": (q_rank, tiny.width),
        "attn_q_a_norm.weight": (q_rank,),
        "attn_q_b.weight": (tiny.heads * key_dim, q_rank),
        "attn_kv_a_mqa.weight": (rank + rotary_dim, tiny.width),
        "attn_kv_a_norm.weight": (rank,),
        "attn_kv_b.weight": (tiny.heads * (key_dim - rotary_dim + value_dim), rank),
        "attn_output.weight": (tiny.width, tiny.heads * value_dim),
        "ffn_norm.weight": (tiny.width,),
    } | gated(tiny)


def plm(tiny: Tiny, layer: int) -> Tensors:
    """Queries without a product of lower rank."""
    left_out = ("attn_q_a", "attn_q_b", "ffn_gate")
    tensors = {k: v for k, v in minicpm3(tiny, layer).items() if not k.startswith(left_out)}
    return tensors | {"attn_q.weight": (tiny.heads * tiny.metadata["attention.key_length"], tiny.width)}


def granite_swa(tiny: Tiny, layer: int) -> Tensors:
    return transformer(tiny, layer) | {"attn_sinks.weight": (tiny.heads,)}


def spark2_5(tiny: Tiny, layer: int) -> Tensors:
    """A gate for each head."""
    heads = tiny.metadata["attention.head_count"][layer]
    return transformer(replace(tiny, heads=heads), layer) | {"attn_gate.weight": (heads, tiny.width)}


def plamo3(tiny: Tiny, layer: int) -> Tensors:
    """Gate and up are one matrix; norms behind each half have names without an ending."""
    tensors = fused_without_biases(tiny, layer) | {"ffn_up.weight": (2 * tiny.ffn, tiny.width)}
    del tensors["ffn_gate.weight"]
    return tensors | dict.fromkeys(("post_attention_norm", "post_ffw_norm"), (tiny.width,))


def talkie(tiny: Tiny, layer: int) -> Tensors:
    tensors = {name: shape for name, shape in transformer(tiny, layer).items() if "norm" not in name}
    return tensors | {"attn_q_norm.weight": (tiny.heads, 1), "layer_output_scale.weight": (1,)}
