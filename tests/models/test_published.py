"""Files in the forms that Ollama published: they give the same as those in llama.cpp's form, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from puna.backends.cpu.backend import CpuBackend
from puna.gguf import GgufError, GgufFile
from puna.gguf.published import translation_of
from tests.forward import all_logits, load_file
from tests.heads import Drafting, write_predicting
from tests.tiny import TINY, write_tiny
from tests.tiny.published import FORMS, HEAD_FORMS, Form, publish, write_both

pytestmark = pytest.mark.native


@pytest.mark.parametrize("name", FORMS)
def test_runs_as_the_converted_file(name: str, tmp_path: Path):
    backend = CpuBackend(2)
    tokens = [5, 9, 200, 3, 77, 8] * 4
    files = write_both(tmp_path, name)
    expected, found = (all_logits(load_file(backend, path), tokens) for path in files)
    np.testing.assert_array_equal(found, expected)


def drafted(backend: CpuBackend, path: Path) -> list[list[int]]:
    """By its head, from what it says."""
    model = load_file(backend, path)
    assert model.info.predicts
    drafting = Drafting(model, 100)
    drafting.compute([5, 9, 200, 3, 77, 8] * 4, chunk=10)
    drafting.step([])
    found = []
    for _ in range(10):
        found.append(drafting.draft(3))
        drafting.step(found[-1])
    assert drafting.num_right > 3
    drafting.close()
    model.close()
    return found


@pytest.mark.parametrize("name", HEAD_FORMS)
def test_its_head_drafts_as_the_converted_one(name: str, tmp_path: Path):
    form = HEAD_FORMS[name]
    converted = write_predicting(tmp_path / "converted.gguf", TINY[form.tiny])
    publish(converted, published := tmp_path / "published.gguf", form)
    with GgufFile(converted) as expected, GgufFile(published) as found:
        assert found.tensors.keys() == expected.tensors.keys()
        for key, tensor in expected.tensors.items():
            assert (found.tensors[key].type, found.tensors[key].shape) == (tensor.type, tensor.shape)
            np.testing.assert_array_equal(found.data(key), expected.data(key))
            np.testing.assert_array_equal(found.dequantize(key), expected.dequantize(key))
    backend = CpuBackend(2)
    assert drafted(backend, published) == drafted(backend, converted)


@pytest.mark.parametrize(
    ("changed", "shape"),
    [
        ("mtp.fc.weight", None),
        ("mtp.fc.weight", (96, 96)),
        ("mtp.pre_fc_norm_hidden.weight", (1, 96)),
        ("mtp.layers.0.attn_q.weight", None),
        ("mtp.layers.0.attn_norm.weight", (64,)),
        ("mtp.layers.0.mlp.experts.1.up_proj.weight", None),
        ("mtp.layers.0.mlp.experts.1.up_proj.weight", (32, 96)),
        ("mtp.layers.0.ffn_up_exps.weight", (8, 64, 96)),
        ("mtp.shared_head.norm.weight", (96,)),
        ("mtp.extra.weight", (96,)),
        ("blk.3.attn_norm.weight", (96,)),
        ("blk.2.ffn_gate_exps.weight", (8,)),
    ],
)
def test_a_head_that_is_not_whole_is_left_out(changed: str, shape: tuple[int, ...] | None, tmp_path: Path):
    converted, published = write_both(tmp_path, "qwen35moe-head")
    more = {} if shape is None else {changed: np.ones(shape, np.float32)}
    publish(converted, published, HEAD_FORMS["qwen35moe-head"], more, left_out=[changed])
    with GgufFile(published) as file:
        assert "qwen35moe.nextn_predict_layers" not in file.metadata
        assert not any("nextn" in name or name.startswith("mtp.") for name in file.tensors)
    if changed.startswith("mtp."):
        assert not load_file(CpuBackend(1), published).info.predicts


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
