"""Files in the forms that Ollama published: they give the same as those in llama.cpp's form, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from puna.backends.cpu.backend import CpuBackend
from puna.gguf import GgufError, GgufFile
from puna.gguf.published import translation_of
from tests.forward import all_logits, load_file
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

INT = gguf.GGUFValueType.INT32
TYPES = {
    str: gguf.GGUFValueType.STRING,
    int: gguf.GGUFValueType.UINT32,
    float: gguf.GGUFValueType.FLOAT32,
}


@dataclass(frozen=True)
class Form:
    """How a tiny file is rewritten."""

    tiny: str
    architecture: str
    """As it is published."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Ends of tensors' names."""
    left_out: tuple[str, ...] = ()
    """Ends of keys."""
    added: Mapping[str, Any] = field(default_factory=dict)
    """Keys with other values, or that only these files have."""
    added_tensors: tuple[str, ...] = ()


FORMS = {
    "gemma3": Form(
        "gemma3",
        "gemma3",
        left_out=("rope.freq_base", "rope.freq_base_swa"),
        added={"gemma3.rope.global.freq_base": 10000.0, "gemma3.rope.local.freq_base": 5000.0},
        added_tensors=("v.patch_embedding.weight", "mm.mm_input_projection.weight"),
    ),
    "gemma4": Form(
        "gemma4-experts",
        "gemma4",
        renamed={".ffn_down_exps.scale": ".ffn_gate_inp.per_expert_scale"},
        added_tensors=("v.patch_embedding.weight", "a.conv.weight", "mm.input_projection.weight"),
    ),
    "llama4": Form("llama4", "llama4", added_tensors=("v.patch_embedding.weight", "mm.linear_1.weight")),
    "gptoss": Form(
        "gpt-oss",
        "gptoss",
        renamed={
            ".attn_output.weight": ".attn_out.weight",
            ".attn_output.bias": ".attn_out.bias",
            ".attn_sinks.weight": ".attn_sinks",
            ".post_attention_norm.weight": ".ffn_norm.weight",
        },
        left_out=("expert_feed_forward_length",),
        added={"tokenizer.ggml.pre": "default"},
    ),
    "lfm2": Form(
        "lfm2",
        "lfm2",
        renamed={"token_embd_norm.weight": "output_norm.weight"},
        added={"lfm2.feed_forward_length": 9999, "tokenizer.ggml.pre": "default"},
    ),
    "qwen25vl": Form(
        "qwen2vl",
        "qwen25vl",
        left_out=("rope.dimension_sections",),
        added={"qwen25vl.rope.mrope_section": np.array([3, 3, 2], np.int32)},
        added_tensors=("v.blk.0.attn_q.weight", "mm.0.weight"),
    ),
    "qwen35": Form(
        "qwen35",
        "qwen35",
        renamed={".ssm_dt.bias": ".ssm_dt"},
        added={
            "qwen35.attention.head_count_kv": np.array([0, 0, 2, 0, 0, 2], np.int32),
            "qwen35.rope.dimension_sections": np.array([3, 3, 2], np.int32),
        },
        added_tensors=("v.patch_embed.weight", "mtp.fc.weight"),
    ),
    "qwen3next": Form("qwen3next", "qwen3next", renamed={".ssm_dt.bias": ".ssm_dt"}),
}


def ending(name: str, ends: Mapping[str, str]) -> str:
    found = [(old, new) for old, new in ends.items() if name.endswith(old)]
    return name.removesuffix(found[0][0]) + found[0][1] if found else name


def publish(source: Path, path: Path, form: Form) -> None:
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, form.architecture)
    old = str(reader.fields["general.architecture"].contents())
    for key, value in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture" or key.endswith(form.left_out):
            continue
        key = f"{form.architecture}.{key.removeprefix(old + '.')}" if key.startswith(old + ".") else key
        if key not in form.added:
            sub_type = value.types[1] if len(value.types) > 1 else None
            writer.add_key_value(key, value.contents(), value.types[0], sub_type)
    for key, value in form.added.items():
        if isinstance(value, np.ndarray):
            writer.add_key_value(key, value.tolist(), gguf.GGUFValueType.ARRAY, INT)
        else:
            writer.add_key_value(key, value, TYPES[type(value)])
    for tensor in reader.tensors:
        writer.add_tensor(ending(tensor.name, form.renamed), tensor.data, raw_dtype=tensor.tensor_type)
    for name in form.added_tensors:
        writer.add_tensor(name, np.ones((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("name", FORMS)
def test_runs_as_the_converted_file(name: str, tmp_path: Path):
    form = FORMS[name]
    converted, published = tmp_path / "converted.gguf", tmp_path / "published.gguf"
    write_tiny(converted, TINY[form.tiny])
    publish(converted, published, form)
    backend = CpuBackend(2)
    tokens = [5, 9, 200, 3, 77, 8] * 4
    expected, found = (all_logits(load_file(backend, path), tokens) for path in (converted, published))
    np.testing.assert_array_equal(found, expected)


def test_its_metadata_reads_as_converted(tmp_path: Path):
    converted, published = tmp_path / "converted.gguf", tmp_path / "published.gguf"
    write_tiny(converted, TINY["gpt-oss"])
    publish(converted, published, FORMS["gptoss"])
    with GgufFile(converted) as a, GgufFile(published) as b:
        assert b.tensors.keys() == a.tensors.keys()
        keys = [key for key in a.metadata if key.startswith("gpt-oss.")]
        assert keys
        for key in keys:
            np.testing.assert_array_equal(b.metadata[key], a.metadata[key])
        assert b.metadata["tokenizer.ggml.pre"] == "gpt-4o"
        assert len(b.metadata.texts("tokenizer.ggml.tokens")) == len(a.metadata["tokenizer.ggml.tokens"])


def test_two_tensors_under_one_name_are_an_error(tmp_path: Path):
    converted, published = tmp_path / "converted.gguf", tmp_path / "published.gguf"
    write_tiny(converted, TINY["gpt-oss"])
    publish(converted, published, Form("gpt-oss", "gptoss", added_tensors=("blk.0.attn_out.weight",)))
    with pytest.raises(GgufError, match=r"blk\.0\.attn_out.*another one is 'blk\.0\.attn_output"):
        GgufFile(published)


def test_llama_3_gets_the_end_of_turns():
    tokens = ["x"] * 128256
    tokens[128006], tokens[128009] = "<|start_header_id|>", "<|eot_id|>"
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.eos_token_id": 128001,
    }
    translation = translation_of(metadata, {})
    assert translation is not None
    assert translation.values == {
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.eos_token_id": 128009,
        "tokenizer.ggml.eot_token_id": 128009,
    }
    whole = metadata | {"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.eos_token_id": 128009}
    assert translation_of(whole, {}) is None


def test_heads_of_glm_4_lite_become_one_latent():
    metadata = {
        "general.architecture": "glm4moelite",
        "glm4moelite.attention.kv_lora_rank": 512,
        "glm4moelite.rope.dimension_count": 64,
        "glm4moelite.attention.key_length": 256,
        "glm4moelite.block_count": 47,
    }
    translation = translation_of(metadata, {})
    assert translation is not None
    assert translation.keys["deepseek2.block_count"] == "glm4moelite.block_count"
    of_attention = {key.rpartition(".")[2]: value for key, value in translation.values.items()}
    assert (of_attention["head_count_kv"], of_attention["key_length"], of_attention["value_length"]) == (
        1,
        576,
        512,
    )
    assert (of_attention["key_length_mla"], of_attention["value_length_mla"]) == (256, 256)
