"""gpt-oss: experts in MXFP4, windows in every other layer, sinks and biases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.synthetic.model import SyntheticModel, Tensors, Value
from benchmarks.weights.recipes import Shape


@dataclass(frozen=True)
class GptOss:
    """Sizes; ffn: columns of an expert."""

    title: str
    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int
    experts: int
    experts_used: int
    vocabulary: int

    def model(self) -> SyntheticModel:
        return SyntheticModel(
            architecture="gpt-oss",
            title=self.title,
            mixture="MXFP4",
            metadata=self._metadata(),
            tensors=list(self._tensors()),
            pre_tokenizer="gpt-4o",
        )

    def _metadata(self) -> dict[str, Value]:
        return {
            "block_count": self.layers,
            "context_length": 131072,
            "embedding_length": self.width,
            "feed_forward_length": self.ffn,
            "expert_feed_forward_length": self.ffn,
            "expert_count": self.experts,
            "expert_used_count": self.experts_used,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "attention.sliding_window": self.window,
            "rope.dimension_count": self.head_dim,
            "rope.freq_base": 150000.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 4096,
        }

    def _tensors(self) -> Iterator[Shape]:
        t = Tensors(self.layers)
        yield t.matrix("token_embd", self.vocabulary, self.width)
        yield t.vector("output_norm.weight", self.width)
        yield t.matrix("output", self.vocabulary, self.width)
        for i in range(self.layers):
            yield from self._attention(t, i)
            yield from self._experts(t, i)

    def _attention(self, t: Tensors, layer: int) -> Iterator[Shape]:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield t.vector("attn_norm.weight", self.width, layer)
        for name, rows, cols in (
            ("attn_q", q, self.width),
            ("attn_k", kv, self.width),
            ("attn_v", kv, self.width),
            ("attn_output", self.width, q),
        ):
            yield t.matrix(name, rows, cols, layer)
            yield t.vector(f"{name}.bias", rows, layer)
        yield t.vector("attn_sinks.weight", self.heads, layer)
        yield t.vector("post_attention_norm.weight", self.width, layer)

    def _experts(self, t: Tensors, layer: int) -> Iterator[Shape]:
        yield t.matrix("ffn_gate_inp", self.experts, self.width, layer)
        yield t.vector("ffn_gate_inp.bias", self.experts, layer)
        for name, rows, cols in (
            ("ffn_gate_exps", self.ffn, self.width),
            ("ffn_up_exps", self.ffn, self.width),
            ("ffn_down_exps", self.width, self.ffn),
        ):
            yield t.matrix(name, rows, cols, layer, experts=self.experts)
            yield t.biases(f"{name}.bias", self.experts, rows, layer)


GPT_OSS_20B = GptOss(
    "gpt-oss-20b, 6 of 24 layers and as much of the vocabulary",
    layers=6,
    width=2880,
    ffn=2880,
    heads=64,
    kv_heads=8,
    head_dim=64,
    window=128,
    experts=32,
    experts_used=4,
    vocabulary=201088 // 4,
)
