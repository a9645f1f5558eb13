"""Models whose tokens see the whole text."""

from __future__ import annotations

from tests.tiny.files import Tiny
from tests.tiny.layer_norm import LAYER_NORM
from tests.tiny.tensors import layers
from tests.tiny.tensors.layers import Tensors

MEAN, CLS, LAST, RANK = ({"pooling_type": kind} for kind in (1, 2, 3, 4))


def bert(tiny: Tiny, _: int) -> Tensors:
    """Biases everywhere, norms behind each half."""
    tensors = layers.attention(tiny)
    for name in ("attn_output", "layer_output"):
        tensors |= {f"{name}_norm.{kind}": (tiny.width,) for kind in ("weight", "bias")}
    tensors |= {"ffn_up.weight": (tiny.ffn, tiny.width), "ffn_down.weight": (tiny.width, tiny.ffn)}
    matrices = [name for name in tensors if name.endswith(".weight") and "norm" not in name]
    return tensors | {name.replace(".weight", ".bias"): tensors[name][:1] for name in matrices}


def nomic(tiny: Tiny, layer: int) -> Tensors:
    return _without_biases(bert(tiny, layer)) | layers.gated(tiny)


def nomic_moe(tiny: Tiny, layer: int) -> Tensors:
    """Every other layer has experts, without a gate."""
    tensors = bert(tiny, layer)
    if layer % 2 == 0:
        return tensors
    tensors = {name: shape for name, shape in tensors.items() if not name.startswith("ffn_")}
    experts = {name: shape for name, shape in layers.experts(tiny).items() if "ffn_gate_exps" not in name}
    return tensors | experts


def jina2(tiny: Tiny, layer: int) -> Tensors:
    """With norms of q and k over all heads, and a third norm."""
    norms = {"attn_q_norm": tiny.heads * tiny.head_dim, "attn_k_norm": tiny.kv_heads * tiny.head_dim}
    norms["attn_norm_2"] = tiny.width
    more: Tensors = {f"{name}.{kind}": (n,) for name, n in norms.items() for kind in ("weight", "bias")}
    tensors = bert(tiny, layer) | more | {"ffn_gate.weight": (tiny.ffn, tiny.width)}
    del tensors["ffn_up.bias"]
    return tensors


def jina2_fused(tiny: Tiny, layer: int) -> Tensors:
    """Gate and up are one matrix."""
    return bert(tiny, layer) | {"ffn_up.weight": (2 * tiny.ffn, tiny.width), "ffn_up.bias": (2 * tiny.ffn,)}


def modern_bert(tiny: Tiny, layer: int) -> Tensors:
    tensors: Tensors = {} if layer == 0 else {"attn_norm.weight": (tiny.width,)}
    return tensors | {
        "attn_qkv.weight": (3 * tiny.width, tiny.width),
        "attn_output.weight": (tiny.width, tiny.width),
        "ffn_norm.weight": (tiny.width,),
        "ffn_up.weight": (2 * tiny.ffn, tiny.width),
        "ffn_down.weight": (tiny.width, tiny.ffn),
    }


def neo_bert(tiny: Tiny, _: int) -> Tensors:
    return modern_bert(tiny, 1)


def t5(tiny: Tiny, layer: int) -> Tensors:
    """Only the first layer knows the ranges of distances."""
    of = layers.attention(tiny) | layers.gated(tiny)
    of["attn_o.weight"] = of.pop("attn_output.weight")
    of |= {"attn_norm.weight": (tiny.width,), "ffn_norm.weight": (tiny.width,)}
    return of | ({"attn_rel_b.weight": (32, tiny.heads)} if layer == 0 else {})


def _without_biases(tensors: Tensors) -> Tensors:
    return {name: shape for name, shape in tensors.items() if not name.endswith(".bias") or "_norm" in name}


def of_bert(tiny: Tiny, _vocab: int) -> Tensors:
    """Besides those of its layers."""
    return {"token_embd_norm.bias": (tiny.width,), "token_types.weight": (2, tiny.width)}


def of_modern_bert(tiny: Tiny, _vocab: int) -> Tensors:
    return {"token_embd_norm.weight": (tiny.width,)}


def of_gemma(tiny: Tiny, _vocab: int) -> Tensors:
    wide = tiny.metadata["dense_2_feat_out"]
    return {"dense_2.weight": (wide, tiny.width), "dense_3.weight": (tiny.width, wide)}


def _scores(tiny: Tiny) -> Tensors:
    return {
        "cls.weight": (tiny.width, tiny.width),
        "cls.bias": (tiny.width,),
        "cls.output.weight": (1, tiny.width),
        "cls.output.bias": (1,),
    }


def bert_ranker(tiny: Tiny, vocab: int) -> Tensors:
    return of_bert(tiny, vocab) | _scores(tiny)


def jina_ranker(tiny: Tiny, vocab: int) -> Tensors:
    return of_bert(tiny, vocab) | {"cls.weight": (1, tiny.width), "cls.bias": (1,)}


def modern_ranker(tiny: Tiny, vocab: int) -> Tensors:
    scores = {name: shape for name, shape in _scores(tiny).items() if name != "cls.bias"}
    return scores | {"cls.norm.weight": (tiny.width,)} | of_modern_bert(tiny, vocab)


def qwen_ranker(tiny: Tiny, _vocab: int) -> Tensors:
    return {"cls.output.weight": (2, tiny.width)}


def _bert(architecture: str, **fields: object) -> Tiny:
    """GELU adds little: llama.cpp rounds it to half precision."""
    common = {
        "kv_heads": 6,
        "context": 512,
        "metadata": LAYER_NORM | MEAN,
        "layer_tensors": bert,
        "output_norm": "token_embd_norm.weight",
        "model_tensors": of_bert,
        "ffn_scale": 0.1,
    }
    return Tiny(architecture, **(common | fields))  # type: ignore[arg-type]


ENCODERS = {
    "bert": _bert("bert", positions=True),
    "bert-cls": _bert("bert", positions=True, metadata=LAYER_NORM | CLS),
    "bert-last": _bert("bert", positions=True, metadata=LAYER_NORM | LAST),
    "nomic-bert": _bert("nomic-bert", layer_tensors=nomic, ffn_scale=1.0),
    "nomic-bert-moe": _bert(
        "nomic-bert-moe",
        layers=4,
        metadata=LAYER_NORM
        | MEAN
        | {
            "moe_every_n_layers": 2,
            "expert_count": 7,
            "expert_used_count": 2,
            "expert_feed_forward_length": 160,
        },
        layer_tensors=nomic_moe,
    ),
    "jina-bert-v2": _bert("jina-bert-v2", layer_tensors=jina2),
    "jina-bert-v2-fused": _bert("jina-bert-v2", layer_tensors=jina2_fused),
    "jina-bert-v3": _bert("jina-bert-v3"),
    "modern-bert": Tiny(
        "modern-bert",
        layers=4,
        kv_heads=6,
        context=512,
        metadata=LAYER_NORM | CLS | {"attention.sliding_window": 40, "rope.freq_base_swa": 1000.0},
        layer_tensors=modern_bert,
        model_tensors=of_modern_bert,
        ffn_scale=0.1,
    ),
    "neo-bert": Tiny(
        "neo-bert",
        kv_heads=6,
        context=512,
        metadata=MEAN,
        layer_tensors=neo_bert,
        output_norm="enc.output_norm.weight",
    ),
    "llama-embed": Tiny("llama-embed", context=512, metadata=MEAN | {"attention.causal": False}),
    "eurobert": Tiny("eurobert", context=512, metadata=MEAN),
    "gemma-embedding": Tiny(
        "gemma-embedding",
        layers=7,
        context=512,
        qk_norm=True,
        post_norm=True,
        metadata=MEAN
        | {"attention.sliding_window": 37, "rope.freq_base_swa": 10000.0}
        | {
            "dense_2_feat_in": 96,
            "dense_2_feat_out": 128,
            "dense_3_feat_in": 128,
            "dense_3_feat_out": 96,
        },
        model_tensors=of_gemma,
        ffn_scale=0.1,
    ),
    "t5encoder": Tiny(
        "t5encoder",
        kv_heads=6,
        context=512,
        metadata=MEAN | {"attention.relative_buckets_count": 32, "attention.causal": False},
        layer_tensors=t5,
        blocks="enc.blk",
        output_norm="enc.output_norm.weight",
        ffn_scale=0.1,
    ),
}
RANKERS = {
    "bert": _bert("bert", positions=True, metadata=LAYER_NORM | RANK, model_tensors=bert_ranker),
    "jina-bert-v2": _bert(
        "jina-bert-v2",
        metadata=LAYER_NORM | RANK,
        layer_tensors=jina2,
        model_tensors=jina_ranker,
    ),
    "modern-bert": Tiny(
        "modern-bert",
        layers=4,
        kv_heads=6,
        context=512,
        metadata=LAYER_NORM | RANK | {"attention.sliding_window": 40},
        layer_tensors=modern_bert,
        model_tensors=modern_ranker,
        ffn_scale=0.1,
    ),
    "qwen3": Tiny(
        "qwen3",
        qk_norm=True,
        metadata=RANK | {"classifier.output_labels": ["yes", "no"]},
        model_tensors=qwen_ranker,
    ),
}
"""They give scores of texts."""
