"""Models of which llama-quantize's choice of types is known: names and shapes of large ones, tiny weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np


@dataclass(frozen=True)
class Model:
    architecture: str = "llama"
    layers: int = 32
    heads: int = 8
    kv_heads: int = 2
    experts: int = 0
    columns: int = 256
    ffn_columns: int = 512
    names: tuple[str, ...] = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    more: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Tensors of which there is one, shapes fastest first."""
    is_tied: bool = False

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "token_embd.weight", (self.columns, 3)
        yield "output_norm.weight", (self.columns,)
        if not self.is_tied:
            yield "output.weight", (self.columns, 3)
        yield from self.more.items()
        for layer in range(self.layers):
            yield f"blk.{layer}.attn_norm.weight", (self.columns,)
            for name in self.names:
                columns = self.ffn_columns if "ffn_down" in name else self.columns
                rows = (2, self.experts) if name.endswith("_exps") else (2,)
                yield f"blk.{layer}.{name}.weight", (columns, *rows)


_ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
_EXPERTS = ("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")

MODELS = {
    "dense": Model(
        more={
            "blk.0.attn_q.bias": (256,),
            "blk.1.ssm_conv1d.weight": (4, 256),
            "blk.1.ffn_norm.weight": (256, 2),
            "blk.2.shortconv.conv.weight": (256, 2),
            "blk.3.ssm_a": (256, 2),
            "blk.4.attn_sinks.weight": (256, 1),
            "position_embd.weight": (256, 2),
            "per_layer_token_embd.weight": (256, 2),
        }
    ),
    "embedding that makes the logits, rows that are no multiple of 256": Model(
        layers=30, columns=576, ffn_columns=1536, is_tied=True
    ),
    "rows that are no multiple of 32": Model(layers=4, heads=4, columns=40, ffn_columns=96),
    "8 experts": Model(experts=8, names=_ATTENTION + _EXPERTS),
    "other experts": Model(
        "qwen2moe", layers=24, experts=60, names=(*_ATTENTION, *_EXPERTS, "ffn_down_shexp")
    ),
    "70B": Model(layers=80),
    "65B": Model(layers=80, kv_heads=8),
    "fused attention": Model("phi3", names=("attn_qkv", "attn_output", "ffn_up", "ffn_down")),
    "falcon": Model("falcon", names=("attn_qkv", "attn_output", "ffn_up", "ffn_down")),
}


def write_model(path: Path, model: Model) -> None:
    """Weights are zeros, in F16; vectors F32."""
    writer = gguf.GGUFWriter(path, model.architecture)
    writer.add_file_type(1)
    writer.add_context_length(64)
    writer.add_embedding_length(model.columns)
    writer.add_block_count(model.layers)
    writer.add_feed_forward_length(model.ffn_columns)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    if model.experts:
        writer.add_expert_count(model.experts)
        writer.add_expert_used_count(2)
    for name, shape in model.shapes():
        writer.add_tensor(name, np.zeros(shape[::-1], np.float16 if len(shape) > 1 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
