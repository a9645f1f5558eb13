"""Files in the forms that Ollama published: they give the same as those in llama.cpp's form, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from puna.backends.cpu.backend import CpuBackend
from puna.gguf import GgufError, GgufFile
from puna.gguf.published import translation_of
from tests.forward import all_logits, load_file
from tests.tiny import TINY, write_tiny
from tests.tiny.published import FORMS, Form, publish, write_both

pytestmark = pytest.mark.native


@pytest.mark.parametrize("name", FORMS)
def test_runs_as_the_converted_file(name: str, tmp_path: Path):
    backend = CpuBackend(2)
    tokens = [5, 9, 200, 3, 77, 8] * 4
    files = write_both(tmp_path, name)
    expected, found = (all_logits(load_file(backend, path), tokens) for path in files)
    np.testing.assert_array_equal(found, expected)


def test_its_metadata_reads_as_converted(tmp_path: Path):
    converted, published = write_both(tmp_path, "gptoss")
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
