"""Prediction heads by their formula, in float64: of a sequence as a whole, nothing is kept between calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class HeadFormula:
    """Of Qwen3.5, GLM-4.5 and DeepSeek V3 (arXiv 2412.19437, section 2.2), from a file with F32 weights."""

    def __init__(self, path: Path, *, turns: bool = True) -> None:
        """turns: whether queries and keys are rotated; a head that did not would be wrong."""
        reader = gguf.GGUFReader(path)
        self._tensors = {tensor.name: tensor.data.astype(np.float64) for tensor in reader.tensors}
        self._fields = {name: field.contents() for name, field in reader.fields.items()}
        self._architecture: str = self._fields["general.architecture"]
        self._block = f"blk.{self._number('block_count') - 1}"
        self._turns = turns

    def logits(self, tokens: Sequence[int], hidden: Sequence[Floats], count: int) -> list[Floats]:
        """Of `count` drafts [vocabulary] behind the tokens. hidden: the model's, of all but the last."""
        tokens, before = list(tokens), [np.zeros_like(hidden[0]), *hidden]
        found = []
        for _ in range(count):
            made = self._layer(tokens, np.array(before))
            matrix = self._either("nextn.shared_head_head", "output", "token_embd")
            found.append(matrix @ made)
            tokens.append(int(found[-1].argmax()))
            before.append(made)
        return found

    def _layer(self, tokens: list[int], before: Floats) -> Floats:
        """What the head makes of the last token."""
        embedded = self._either("nextn.embed_tokens", "token_embd")[tokens]
        both = [self._norm(embedded, "nextn.enorm"), self._norm(before, "nextn.hnorm")]
        x = np.concatenate(both, axis=1) @ self._own("nextn.eh_proj").T
        normed = self._norm(x, "attn_norm")
        attention = self._latent_attention if self._has("attn_kv_a_mqa") else self._attention
        y = x[-1] + self._own("attn_output") @ attention(normed)
        z = self._norm(y, "post_attention_norm" if self._has("post_attention_norm") else "ffn_norm")
        y = y + (self._mixture(z) if self._has("ffn_gate_inp") else self._gated(z))
        return _rms_normed(y, self._eps) * self._either("nextn.shared_head_norm", "output_norm")

    def _attention(self, x: Floats) -> Floats:
        """Of the last row."""
        heads, kv_heads = (self._number(f"attention.{name}") for name in ("head_count", "head_count_kv"))
        q, k, v = (self._linear(f"attn_{part}", x) for part in "qkv")
        q, gate = q.reshape(len(x), heads, -1), None
        k, v = k.reshape(len(x), kv_heads, -1), v.reshape(len(x), kv_heads, -1)
        if q.shape[2] == 2 * k.shape[2]:
            q, gate = np.split(q, 2, axis=2)
        if self._has("attn_q_norm"):
            q, k = self._norm(q, "attn_q_norm"), self._norm(k, "attn_k_norm")
        q, k = self._rotated(q, "neox"), self._rotated(k, "neox")
        repeated = heads // kv_heads
        k, v = np.repeat(k, repeated, axis=1), np.repeat(v, repeated, axis=1)
        seen = _attended(q[-1], k, v, q.shape[2] ** -0.5)
        return (seen if gate is None else seen / (1 + np.exp(-gate[-1]))).ravel()

    def _latent_attention(self, x: Floats) -> Floats:
        """With keys and values of each head made of the latents, as the paper has it."""
        heads, rank = self._number("attention.head_count"), self._number("attention.kv_lora_rank")
        key_dim, turning = self._number("attention.key_length_mla"), self._number("rope.dimension_count")
        q = self._linear("attn_q_b", self._norm(self._linear("attn_q_a", x), "attn_q_a_norm"))
        q = q.reshape(len(x), heads, key_dim)
        latent, shared = np.split(self._linear("attn_kv_a_mqa", x), [rank], axis=1)
        latent = self._norm(latent, "attn_kv_a_norm")
        plain = np.einsum("hrd,tr->thd", self._own("attn_k_b"), latent)
        v = np.einsum("hdr,tr->thd", self._own("attn_v_b"), latent)
        k = np.concatenate(
            [plain, np.repeat(self._rotated(shared[:, None], "normal"), heads, axis=1)], axis=2
        )
        q = np.concatenate([q[..., :-turning], self._rotated(q[..., -turning:], "normal")], axis=2)
        return _attended(q[-1], k, v, key_dim**-0.5).ravel()

    def _rotated(self, x: Floats, style: str) -> Floats:
        """x: [tokens, heads, dimensions], of which the first turn."""
        turning = self._number("rope.dimension_count", x.shape[2])
        base = self._number("rope.freq_base", 10000.0)
        angles = np.outer(np.arange(len(x)), base ** (-np.arange(0, turning, 2) / turning))[:, None]
        turn = np.exp(1j * angles * self._turns)
        y = x.copy()
        if style == "neox":
            first, second = np.s_[..., : turning // 2], np.s_[..., turning // 2 : turning]
        else:
            first, second = np.s_[..., :turning:2], np.s_[..., 1:turning:2]
        pairs = (x[first] + 1j * x[second]) * turn
        y[first], y[second] = pairs.real, pairs.imag
        return y

    def _mixture(self, x: Floats) -> Floats:
        scores = 1 / (1 + np.exp(-self._own("ffn_gate_inp") @ x))
        choice = scores + self._own("exp_probs_b", "bias")
        if (num_groups := self._number("expert_group_count", 1)) > 1:
            groups = choice.reshape(num_groups, -1)
            best = np.sort(groups, axis=1)[:, -2:].sum(axis=1)
            groups[np.argsort(best)[: -self._number("expert_group_used_count")]] = -np.inf
        chosen = np.argsort(choice)[-self._number("expert_used_count") :]
        shares = scores[chosen] / scores[chosen].sum() * self._number("expert_weights_scale", 1.0)
        parts = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
        given = [_glu(x, *(self._own(part)[expert] for part in parts)) for expert in chosen]
        return shares @ np.array(given) + self._gated(x, "_shexp")

    def _gated(self, x: Floats, suffix: str = "") -> Floats:
        return _glu(x, *(self._own(f"ffn_{part}{suffix}") for part in ("gate", "up", "down")))

    def _linear(self, name: str, x: Floats) -> Floats:
        y = x @ self._own(name).T
        return y + self._own(name, "bias") if f"{self._block}.{name}.bias" in self._tensors else y

    def _norm(self, x: Floats, name: str) -> Floats:
        return _rms_normed(x, self._eps) * self._own(name)

    @property
    def _eps(self) -> float:
        return float(self._number("attention.layer_norm_rms_epsilon"))

    def _own(self, name: str, kind: str = "weight") -> Floats:
        return self._tensors[f"{self._block}.{name}.{kind}"]

    def _has(self, name: str) -> bool:
        return f"{self._block}.{name}.weight" in self._tensors

    def _either(self, own: str, *others: str) -> Floats:
        names = [f"{self._block}.{own}.weight", *(f"{other}.weight" for other in others)]
        return next(self._tensors[name] for name in names if name in self._tensors)

    def _number(self, name: str, default: Any = None) -> Any:
        return self._fields.get(f"{self._architecture}.{name}", default)


def _rms_normed(x: Floats, eps: float) -> Floats:
    normed: Floats = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    return normed


def _attended(q: Floats, k: Floats, v: Floats, scale: float) -> Floats:
    """q: [heads, dimensions] of the last token, k and v: [tokens, heads, dimensions]."""
    scores = np.einsum("hd,thd->ht", q, k) * scale
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    attended: Floats = np.einsum("ht,thd->hd", shares / shares.sum(axis=1, keepdims=True), v)
    return attended


def _glu(x: Floats, gate: Floats, up: Floats, down: Floats) -> Floats:
    y = gate @ x
    given: Floats = down @ (y / (1 + np.exp(-y)) * (up @ x))
    return given
