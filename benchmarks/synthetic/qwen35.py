"""Qwen3.5: in three of four layers a gated delta net instead of attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.synthetic.model import SyntheticModel, Tensors, Value
from benchmarks.weights.recipes import Shape

_ATTENTION_EVERY = 4
_CONVOLUTION = 4


@dataclass(frozen=True)
class Qwen35:
    """Sizes; of the delta nets: key heads, value heads, and the width of either kind."""

    title: str
    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    delta_key_heads: int
    delta_value_heads: int
    delta_dim: int
    vocabulary: int
    context: int = 262144
    chat_template: str | None = None
    mixture: str = "Q4_K_M"
    is_tied: bool = True
    predicts: bool = False
    """Whether there is a prediction head, which is a layer more."""

    def model(self) -> SyntheticModel:
        return SyntheticModel(
            architecture="qwen35",
            title=self.title,
            mixture=self.mixture,
            metadata=self._metadata(),
            tensors=list(self._tensors()),
            pre_tokenizer="qwen35",
            chat_template=self.chat_template,
        )

    def _metadata(self) -> dict[str, Value]:
        rotated = self.head_dim // 4
        return {
            "block_count": self.layers + self.predicts,
            "nextn_predict_layers": int(self.predicts),
            "context_length": self.context,
            "embedding_length": self.width,
            "feed_forward_length": self.ffn,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e7,
            "rope.dimension_count": rotated,
            "rope.dimension_sections": [*((rotated // 2 + 2 - axis) // 3 for axis in range(3)), 0],
            "full_attention_interval": _ATTENTION_EVERY,
            "ssm.conv_kernel": _CONVOLUTION,
            "ssm.inner_size": self.delta_value_heads * self.delta_dim,
            "ssm.state_size": self.delta_dim,
            "ssm.time_step_rank": self.delta_value_heads,
            "ssm.group_count": self.delta_key_heads,
        }

    def _tensors(self) -> Iterator[Shape]:
        t = Tensors(self.layers, self.is_tied)
        yield t.matrix("token_embd", self.vocabulary, self.width)
        yield t.vector("output_norm.weight", self.width)
        if not self.is_tied:
            yield t.matrix("output", self.vocabulary, self.width)
        for i in range(self.layers + self.predicts):
            yield t.vector("attn_norm.weight", self.width, i)
            is_attention = (i + 1) % _ATTENTION_EVERY == 0 or i == self.layers
            yield from self._attention(t, i) if is_attention else self._delta_net(t, i)
            yield t.vector("post_attention_norm.weight", self.width, i)
            yield t.matrix("ffn_gate", self.ffn, self.width, i)
            yield t.matrix("ffn_up", self.ffn, self.width, i)
            yield t.matrix("ffn_down", self.width, self.ffn, i)
        if self.predicts:
            yield from self._head(t)

    def _head(self, t: Tensors) -> Iterator[Shape]:
        for name in ("enorm", "hnorm", "shared_head_norm"):
            yield t.vector(f"nextn.{name}.weight", self.width, self.layers)
        yield t.matrix("nextn.eh_proj", self.width, 2 * self.width, self.layers)

    def _attention(self, t: Tensors, layer: int) -> Iterator[Shape]:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield t.matrix("attn_q", 2 * q, self.width, layer)  # and a gate for each value
        yield t.matrix("attn_k", kv, self.width, layer)
        yield t.matrix("attn_v", kv, self.width, layer)
        yield t.vector("attn_q_norm.weight", self.head_dim, layer)
        yield t.vector("attn_k_norm.weight", self.head_dim, layer)
        yield t.matrix("attn_output", self.width, q, layer)

    def _delta_net(self, t: Tensors, layer: int) -> Iterator[Shape]:
        keys, values = self.delta_key_heads * self.delta_dim, self.delta_value_heads * self.delta_dim
        yield t.matrix("attn_qkv", 2 * keys + values, self.width, layer)
        yield t.matrix("attn_gate", values, self.width, layer)
        yield t.matrix("ssm_conv1d", 2 * keys + values, _CONVOLUTION, layer)
        yield t.vector("ssm_dt.bias", self.delta_value_heads, layer)
        yield t.vector("ssm_a", self.delta_value_heads, layer)
        yield t.matrix("ssm_beta", self.delta_value_heads, self.width, layer)
        yield t.matrix("ssm_alpha", self.delta_value_heads, self.width, layer)
        yield t.vector("ssm_norm.weight", self.delta_dim, layer)
        yield t.matrix("ssm_out", self.width, values, layer)


QWEN35_4B = Qwen35(
    "Qwen3.5-4B",
    layers=32,
    width=2560,
    ffn=9216,
    heads=16,
    kv_heads=4,
    head_dim=256,
    delta_key_heads=16,
    delta_value_heads=32,
    delta_dim=128,
    vocabulary=248320,
)
