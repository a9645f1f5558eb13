"""Tensors of one layer of a tiny hybrid: name -> shape in numpy order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.tiny.tensors.layers import Tensors, attention, experts, gated, is_head, plamo3
from tests.tiny.tensors.mixture_layers import deepseek2

if TYPE_CHECKING:
    from tests.tiny.files import Tiny


def _feed_forward(tiny: Tiny) -> Tensors:
    """With experts, one that all tokens share as well."""
    return experts(tiny) | gated(tiny, "_shexp") if "expert_count" in tiny.metadata else gated(tiny)


def qwen35(tiny: Tiny, layer: int) -> Tensors:
    """Of Qwen3.5 and Qwen3-Next, and of their prediction heads."""
    tensors: Tensors = {"attn_norm.weight": (tiny.width,), "post_attention_norm.weight": (tiny.width,)}
    tensors |= _feed_forward(tiny)
    if "expert_count" in tiny.metadata:
        tensors["ffn_gate_inp_shexp.weight"] = (tiny.width,)
    if is_head(tiny, layer):
        return tensors | attention(tiny, query_parts=2)
    if (layer + 1) % tiny.metadata["full_attention_interval"] == 0:
        return tensors | attention(tiny, query_parts=2)
    return tensors | _delta_net(tiny)


def _delta_net(tiny: Tiny) -> Tensors:
    sizes = (tiny.metadata[f"ssm.{name}"] for name in ("group_count", "time_step_rank", "state_size"))
    num_keys, num_values, dim = sizes
    mixed, values, width = (2 * num_keys + num_values) * dim, num_values * dim, tiny.width
    tensors: Tensors = {
        "ssm_conv1d.weight": (mixed, tiny.metadata["ssm.conv_kernel"]),
        "ssm_dt.bias": (num_values,),
        "ssm_a": (num_values,),
        "ssm_norm.weight": (dim,),
        "ssm_out.weight": (width, values),
    }
    if tiny.architecture == "qwen3next":
        tensors["ssm_ba.weight"] = (2 * num_values, width)
    else:
        tensors |= {"ssm_alpha.weight": (num_values, width), "ssm_beta.weight": (num_values, width)}
    if tiny.one_projection:
        return tensors | {"ssm_in.weight": (mixed + values, width)}
    return tensors | {"attn_qkv.weight": (mixed, width), "attn_gate.weight": (values, width)}


def lfm2(tiny: Tiny, layer: int) -> Tensors:
    width = tiny.width
    tensors: Tensors = {"attn_norm.weight": (width,), "ffn_norm.weight": (width,)}
    if layer < tiny.metadata.get("leading_dense_block_count", tiny.layers):
        tensors |= gated(tiny)
    else:
        tensors |= experts(tiny) | {"exp_probs_b.bias": (tiny.metadata["expert_count"],)}
    if tiny.metadata["attention.head_count_kv"][layer]:
        return tensors | attention(tiny)
    return tensors | {
        "shortconv.in_proj.weight": (3 * width, width),
        "shortconv.conv.weight": (width, tiny.metadata["shortconv.l_cache"]),
        "shortconv.out_proj.weight": (width, width),
    }


def mamba2(tiny: Tiny, _: int) -> Tensors:
    names = ("inner_size", "time_step_rank", "group_count", "state_size", "conv_kernel")
    inner, heads, groups, state, kernel = (tiny.metadata[f"ssm.{name}"] for name in names)
    mixed = inner + 2 * groups * state
    return {
        "attn_norm.weight": (tiny.width,),
        "ssm_in.weight": (inner + mixed + heads, tiny.width),
        "ssm_conv1d.weight": (mixed, kernel),
        "ssm_conv1d.bias": (mixed,),
        "ssm_dt.bias": (heads,),
        "ssm_a": (heads, 1),
        "ssm_d": (heads, 1),
        "ssm_norm.weight": (groups, inner // groups),
        "ssm_out.weight": (tiny.width, inner),
    }


def granite_hybrid(tiny: Tiny, layer: int) -> Tensors:
    tensors: Tensors = {"ffn_norm.weight": (tiny.width,)} | _feed_forward(tiny)
    if tiny.metadata["attention.head_count_kv"][layer]:
        return tensors | {"attn_norm.weight": (tiny.width,)} | attention(tiny)
    return tensors | mamba2(tiny, layer)


def nemotron_h(tiny: Tiny, layer: int) -> Tensors:
    of, width = tiny.metadata, tiny.width
    norm: Tensors = {"attn_norm.weight": (width,)}
    if of["attention.head_count_kv"][layer]:
        return norm | attention(tiny)
    if not (ffn := of["feed_forward_length"][layer]):
        return norm | mamba2(tiny, layer)
    if "expert_count" not in of:
        return norm | {"ffn_up.weight": (ffn, width), "ffn_down.weight": (width, ffn)}
    inner, count, hidden = (
        of.get("moe_latent_size", width),
        of["expert_count"],
        of["expert_feed_forward_length"],
    )
    shared = of["expert_shared_feed_forward_length"]
    tensors = norm | {
        "ffn_gate_inp.weight": (count, width),
        "exp_probs_b.bias": (count,),
        "ffn_up_exps.weight": (count, hidden, inner),
        "ffn_down_exps.weight": (count, inner, hidden),
        "ffn_up_shexp.weight": (shared, width),
        "ffn_down_shexp.weight": (width, shared),
    }
    if inner != width:
        tensors |= {"ffn_latent_down.weight": (inner, width), "ffn_latent_up.weight": (width, inner)}
    return tensors


def falcon_h1(tiny: Tiny, layer: int) -> Tensors:
    tensors = mamba2(tiny, layer) | attention(tiny) | gated(tiny) | {"ffn_norm": (tiny.width,)}
    del tensors["ssm_norm.weight"]
    return tensors


def mamba(tiny: Tiny, _: int) -> Tensors:
    names = ("inner_size", "time_step_rank", "state_size", "conv_kernel")
    inner, rank, state, kernel = (tiny.metadata[f"ssm.{name}"] for name in names)
    return {
        "attn_norm.weight": (tiny.width,),
        "ssm_in.weight": (2 * inner, tiny.width),
        "ssm_conv1d.weight": (inner, kernel),
        "ssm_conv1d.bias": (inner,),
        "ssm_x.weight": (rank + 2 * state, inner),
        "ssm_dt.weight": (inner, rank),
        "ssm_dt.bias": (inner,),
        "ssm_a": (inner, state),
        "ssm_d": (inner,),
        "ssm_out.weight": (tiny.width, inner),
    }


def jamba(tiny: Tiny, layer: int) -> Tensors:
    """Experts in every other layer."""
    tensors = {"ffn_norm.weight": (tiny.width,)} | (experts(tiny) if layer % 2 else gated(tiny))
    if tiny.metadata["attention.head_count_kv"][layer]:
        return tensors | attention(tiny) | {"attn_norm.weight": (tiny.width,)}
    rank, state = (tiny.metadata[f"ssm.{name}"] for name in ("time_step_rank", "state_size"))
    norms = {f"ssm_{name}_norm.weight": (size,) for name, size in (("dt", rank), ("b", state), ("c", state))}
    return tensors | mamba(tiny, layer) | norms


def kimi_linear(tiny: Tiny, layer: int) -> Tensors:
    of, width = tiny.metadata, tiny.width
    tensors = deepseek2(tiny, layer)
    if layer >= of["leading_dense_block_count"]:
        tensors["exp_probs_b.bias"] = (of["expert_count"],)
    if of["attention.head_count_kv"][layer]:
        return tensors
    dim, heads = of["kda.head_dim"], tiny.heads
    tensors = {name: shape for name, shape in tensors.items() if not name.startswith("attn_")}
    tensors |= {"attn_norm.weight": (width,), "attn_output.weight": (width, dim * heads)}
    for part in "qkv":
        tensors[f"attn_{part}.weight"] = (dim * heads, width)
        tensors[f"ssm_conv1d_{part}.weight"] = (dim * heads, 1, of["ssm.conv_kernel"])
    for part in "fg":
        tensors |= {f"ssm_{part}_a.weight": (dim, width), f"ssm_{part}_b.weight": (dim * heads, dim)}
    return tensors | {
        "ssm_beta.weight": (heads, width),
        "ssm_a": (heads, 1),
        "ssm_dt.bias": (dim * heads,),
        "ssm_norm.weight": (dim,),
    }


def plamo2(tiny: Tiny, layer: int) -> Tensors:
    """As PLaMo 3's, but for what scans, and norms of heads that differ."""
    of, width = tiny.metadata, tiny.width
    heads, kv_heads = (of[f"attention.head_count{kind}"][layer] for kind in ("", "_kv"))
    tensors = plamo3(replace(tiny, heads=heads, kv_heads=kv_heads), layer)
    if kv_heads:
        norms = {"q": (heads, tiny.head_dim), "k": (kv_heads, tiny.head_dim)}
        return tensors | {f"attn_{name}_norm.weight": shape for name, shape in norms.items()}
    names = ("inner_size", "time_step_rank", "state_size", "conv_kernel")
    inner, scans, state, kernel = (of[f"ssm.{name}"] for name in names)
    rank = max(64, width // 16)
    del tensors["attn_qkv.weight"], tensors["attn_output.weight"]
    return tensors | {
        "ssm_in.weight": (2 * inner, width),
        "ssm_conv1d.weight": (inner, kernel),
        "ssm_x.weight": (rank + 2 * state, inner),
        "ssm_dt.weight": (scans, rank),
        "ssm_dt.bias": (scans,),
        "ssm_a": (scans,),
        "ssm_d": (scans,),
        "ssm_dt_norm": (rank,),
        "ssm_b_norm": (state,),
        "ssm_c_norm": (state,),
        "ssm_out.weight": (width, inner),
    }
