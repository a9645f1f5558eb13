"""Qwen3, dense and with experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.synthetic.model import SyntheticModel, Tensors, Value
from benchmarks.weights.recipes import Shape


@dataclass(frozen=True)
class Qwen3:
    """Sizes; experts 0: dense, with `ffn` columns, which are those of an expert otherwise."""

    title: str
    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    head_dim: int = 128
    experts: int = 0
    experts_used: int = 0
    context: int = 40960
    chat_template: str | None = None

    def model(self) -> SyntheticModel:
        return SyntheticModel(
            architecture="qwen3moe" if self.experts else "qwen3",
            title=self.title,
            mixture="Q4_K_M",
            metadata=self._metadata(),
            tensors=list(self._tensors()),
            pre_tokenizer="qwen2",
            chat_template=self.chat_template,
        )

    def _metadata(self) -> dict[str, Value]:
        metadata: dict[str, Value] = {
            "block_count": self.layers,
            "context_length": self.context,
            "embedding_length": self.width,
            "feed_forward_length": self.ffn,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e6,
        }
        if self.experts:
            metadata["expert_count"] = self.experts
            metadata["expert_used_count"] = self.experts_used
            metadata["expert_feed_forward_length"] = self.ffn
        return metadata

    def _tensors(self) -> Iterator[Shape]:
        t = Tensors(self.layers, is_tied=not self.experts)
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield t.matrix("token_embd", self.vocabulary, self.width)
        yield t.vector("output_norm.weight", self.width)
        if not t.is_tied:
            yield t.matrix("output", self.vocabulary, self.width)
        for i in range(self.layers):
            yield t.vector("attn_norm.weight", self.width, i)
            yield t.matrix("attn_q", q, self.width, i)
            yield t.matrix("attn_k", kv, self.width, i)
            yield t.matrix("attn_v", kv, self.width, i)
            yield t.vector("attn_q_norm.weight", self.head_dim, i)
            yield t.vector("attn_k_norm.weight", self.head_dim, i)
            yield t.matrix("attn_output", self.width, q, i)
            yield t.vector("ffn_norm.weight", self.width, i)
            yield from self._experts(t, i) if self.experts else self._dense(t, i)

    def _dense(self, t: Tensors, layer: int) -> Iterator[Shape]:
        yield t.matrix("ffn_gate", self.ffn, self.width, layer)
        yield t.matrix("ffn_up", self.ffn, self.width, layer)
        yield t.matrix("ffn_down", self.width, self.ffn, layer)

    def _experts(self, t: Tensors, layer: int) -> Iterator[Shape]:
        yield t.matrix("ffn_gate_inp", self.experts, self.width, layer)
        yield t.matrix("ffn_gate_exps", self.ffn, self.width, layer, experts=self.experts)
        yield t.matrix("ffn_up_exps", self.ffn, self.width, layer, experts=self.experts)
        yield t.matrix("ffn_down_exps", self.width, self.ffn, layer, experts=self.experts)


QWEN3_4B = Qwen3("Qwen3-4B", 36, 2560, 9728, heads=32, kv_heads=8, vocabulary=151936)
QWEN3_30B_A3B = Qwen3(
    "Qwen3-30B-A3B, 8 of 48 layers and as much of the vocabulary",
    layers=8,
    width=2048,
    ffn=768,
    heads=32,
    kv_heads=4,
    vocabulary=151936 // 6,
    experts=128,
    experts_used=8,
)
