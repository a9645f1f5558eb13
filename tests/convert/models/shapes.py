"""Directories of tiny models by their tensors' shapes, with weights that follow from the names."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.convert.directories import DIRECTORIES, safetensors, write_tokenizer

Shapes = dict[str, tuple[int, ...]]

WIDTH, FFN, VOCAB, EXPERTS = 64, 96, 272, 4
PROJ, NUMBERED = "gate_proj up_proj down_proj", "w1 w3 w2"
_CONFIG = {
    "hidden_size": WIDTH,
    "intermediate_size": FFN,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "norm_eps": 1e-5,
    "vocab_size": VOCAB,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}


@dataclass(frozen=True)
class TinyModel:
    model_class: str
    config: dict[str, Any]
    layers: tuple[Shapes, ...]
    others: Shapes
    prefix: str = "model.layers."
    word_pieces: bool = False

    def shapes(self) -> Shapes:
        named = dict(self.others)
        for number, layer in enumerate(self.layers):
            named |= {f"{self.prefix}{number}.{name}": shape for name, shape in layer.items()}
        return named


def write(directory: Path, model: TinyModel) -> Path:
    directory.mkdir()
    config = _CONFIG | {"num_hidden_layers": len(model.layers), "architectures": [model.model_class]}
    (directory / "config.json").write_text(json.dumps(config | model.config))
    weights = {}
    for name, shape in model.shapes().items():
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        weights[name] = ("F32", rng.standard_normal(shape, dtype=np.float32) / 8)
    (directory / "model.safetensors").write_bytes(safetensors(weights))
    if model.word_pieces:
        pieces = {text: number for number, text in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "the"))}
        tokenizer = {"model": {"type": "WordPiece", "vocab": pieces}, "added_tokens": []}
        (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    else:
        write_tokenizer(directory, DIRECTORIES["qwen2"])
    return directory


def weights(shapes: Shapes) -> Shapes:
    return {f"{name}.weight": shape for name, shape in shapes.items()}


def vectors(*names: str, width: int = WIDTH) -> Shapes:
    return weights(dict.fromkeys(names, (width,)))


def with_biases(shapes: Shapes) -> Shapes:
    return weights(shapes) | {f"{name}.bias": shape[:1] for name, shape in shapes.items()}


def attention(output: str = "o_proj", width: int = WIDTH, queries: int = 0) -> Shapes:
    names = {
        "q_proj": (queries or width, width),
        "k_proj": (width // 2, width),
        "v_proj": (width // 2, width),
    }
    return weights({f"self_attn.{name}": shape for name, shape in names.items()}) | weights(
        {f"self_attn.{output}": (width, width)}
    )


def feed_forward(before: str, names: str = PROJ, size: int = FFN, width: int = WIDTH) -> Shapes:
    gate, up, down = names.split()
    return weights({before + gate: (size, width), before + up: (size, width), before + down: (width, size)})


def experts(before: str, names: str = PROJ, width: int = WIDTH) -> Shapes:
    shapes: Shapes = {}
    for expert in range(EXPERTS):
        shapes |= feed_forward(f"{before}{expert}.", names, 32, width)
    return shapes


def embeddings(embedding: str, norm: str, width: int = WIDTH) -> Shapes:
    return weights({embedding: (VOCAB, width)}) | vectors(norm, width=width)
