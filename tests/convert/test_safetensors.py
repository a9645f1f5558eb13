"""Converted models have the tensors and the metadata that llama.cpp's converter gives them.

What is expected is made with the gguf package and the converter's rules, not with puna's code.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from puna.backends.cpu import CpuBackend
from puna.convert.errors import ConversionError
from puna.convert.requantize import requantize
from puna.convert.safetensors import convert_safetensors
from puna.gguf import GgufFile
from puna.tokenizer.from_gguf import load_tokenizer
from tests.convert.converting import convert, files_in
from tests.convert.directories import (
    DIRECTORIES,
    PIECES,
    TinyDirectory,
    random_weights,
    shapes,
    to_bf16,
    write_directory,
)
from tests.forward import all_logits, load_file
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

Expected = dict[str, NDArray[np.float32]]
ARCHITECTURES = {"mistral": "llama"}
PAIRED = ("llama", "mistral", "granite", "smollm3")


def gguf_name(name: str, architecture: str) -> str:
    numbers = {text: number for number, text in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(numbers[architecture], 7)
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, name
    return found


def permuted(values: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """Halves of a head become neighbours."""
    halves = values.reshape(num_heads, 2, len(values) // num_heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def expected_tensors(name: str, tiny: TinyDirectory, weights: dict[str, NDArray[np.float32]]) -> Expected:
    config, architecture = tiny.full_config, ARCHITECTURES.get(name, name)
    result: Expected = {}
    experts: dict[str, list[NDArray[np.float32]]] = {}
    for source, values in weights.items():
        if name in PAIRED and "q_proj" in source:
            values = permuted(values, config["num_attention_heads"])
        if name in PAIRED and "k_proj" in source:
            values = permuted(values, config["num_key_value_heads"])
        if name.startswith("gemma") and source.endswith("norm.weight"):
            values = values + 1
        if ".experts." in source:
            before, _, after = source.partition(".experts.")
            experts.setdefault(f"{before}.experts.{after.partition('.')[2]}", []).append(values)
        else:
            result[gguf_name(source, architecture)] = values
    for source, matrices in experts.items():
        result[gguf_name(source, architecture)] = np.stack(matrices)
    return result


def llama3_factors(config: dict[str, Any]) -> list[float]:
    scaling, dim = config["rope_scaling"], config["head_dim"]
    original = scaling["original_max_position_embeddings"]
    factors = []
    for i in range(0, dim, 2):
        length = 2 * np.pi * config["rope_theta"] ** (i / dim)
        smooth = (original / length - scaling["low_freq_factor"]) / 3.0
        between = 1 / ((1 - smooth) / scaling["factor"] + smooth)
        is_slow, is_fast = length > original / scaling["low_freq_factor"], length < original / 4.0
        factors.append(scaling["factor"] if is_slow else 1.0 if is_fast else between)
    return factors


@pytest.mark.parametrize("name", DIRECTORIES)
def test_tensors_are_the_references(name: str, tmp_path: Path):
    tiny, output = DIRECTORIES[name], tmp_path / "out.gguf"
    weights = random_weights(tiny)
    directory = write_directory(tmp_path / "in", tiny, weights, num_parts=3 if name == "qwen2" else 1)
    told = convert(convert_safetensors, files_in(directory), output)
    read = {tensor.name: tensor for tensor in gguf.GGUFReader(output).tensors}
    if name == "llama":
        factors = read.pop("rope_freqs.weight")
        np.testing.assert_allclose(factors.data, llama3_factors(tiny.full_config), rtol=1e-6)
    expected = expected_tensors(name, tiny, weights)
    assert read.keys() == expected.keys()
    for tensor, values in expected.items():
        is_single = values.ndim == 1 or tensor.endswith(
            ("_norm.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight")
        )
        assert read[tensor].tensor_type.name == ("F32" if is_single else "BF16")
        content = values if is_single else to_bf16(np.ascontiguousarray(values))
        np.testing.assert_array_equal(read[tensor].data.view(content.dtype), content, err_msg=tensor)
    assert told[-1].completed == told[-1].total == output.stat().st_size
    with closing(CpuBackend()) as backend:
        assert np.isfinite(all_logits(load_file(backend, output), [1, 2, 3])).all()


EXPECTED_METADATA: dict[str, dict[str, Any]] = {
    "llama": {
        "general.architecture": "llama",
        "general.file_type": 32,
        "llama.rope.dimension_count": 32,
        "llama.attention.key_length": 32,
        "llama.context_length": 2048,
        "llama.attention.head_count_kv": 2,
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.bos_token_id": 268,
        "tokenizer.ggml.eos_token_id": 267,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{{ messages[0].content }}",
    },
    "mistral": {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.add_bos_token": True,
    },
    "qwen2": {"tokenizer.ggml.pre": "qwen2", "qwen2.feed_forward_length": 160},
    "qwen3": {
        "qwen3.rope.scaling.type": "yarn",
        "qwen3.rope.scaling.factor": 4.0,
        "qwen3.rope.scaling.original_context_length": 512,
    },
    "qwen3moe": {
        "qwen3moe.expert_count": 7,
        "qwen3moe.expert_used_count": 3,
        "qwen3moe.expert_feed_forward_length": 64,
    },
    "gemma2": {"gemma2.attn_logit_softcapping": 20.0, "gemma2.attention.sliding_window": 64},
    "gemma3": {
        "gemma3.rope.freq_base": 1e6,
        "gemma3.rope.freq_base_swa": 1e4,
        "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0,
        "gemma3.attention.sliding_window": 64,
        "tokenizer.ggml.add_space_prefix": False,
    },
}


@pytest.mark.parametrize("name", EXPECTED_METADATA)
def test_metadata_is_the_references(name: str, tmp_path: Path):
    tiny, output = DIRECTORIES[name], tmp_path / "out.gguf"
    directory = write_directory(tmp_path / "in", tiny, random_weights(tiny))
    (directory / "generation_config.json").write_text(
        '{"temperature": 0.5, "top_k": 7, "eos_token_id": [1, 2]}'
    )
    convert(convert_safetensors, files_in(directory), output)
    expected = EXPECTED_METADATA[name] | {"general.sampling.temp": 0.5, "general.sampling.top_k": 7}
    with GgufFile(output) as file:
        assert {key: file.metadata.get(key) for key in expected} == expected
        tokens, kinds = file.metadata["tokenizer.ggml.tokens"], [*file.metadata["tokenizer.ggml.token_type"]]
        if tiny.sentencepiece:
            assert tokens == [*PIECES, "<start>", *(f"[PAD{len(PIECES) + i}]" for i in (1, 2))]
            assert kinds == [2, 3, 3, *[6] * 256, *[1] * (len(PIECES) - 259), 3, 5, 5]
            scores = file.metadata["tokenizer.ggml.scores"]
            assert [*scores[-4:]] == [1 - len(PIECES), -1000, -10000, -10000]
        else:
            assert tokens[-5:-2] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
            assert kinds == [1] * 267 + [3] * 3 + [5] * 2
        assert load_tokenizer(file.metadata).encode("the t", add_special=False)


@pytest.mark.parametrize("quantize", ["F16", "Q4_1", "Q8_0"])
def test_weights_are_quantized_on_their_way_as_they_are_afterwards(quantize: str, tmp_path: Path):
    tiny = DIRECTORIES["qwen3moe"]
    files = files_in(write_directory(tmp_path / "in", tiny, random_weights(tiny)))
    plain, at_once, later = (tmp_path / name for name in ("plain.gguf", "once.gguf", "later.gguf"))
    convert(convert_safetensors, files, plain)
    convert(convert_safetensors, files, at_once, quantize.lower())
    convert(requantize, {"plain": plain}, later, quantize)
    with GgufFile(at_once) as ours, GgufFile(later) as theirs:
        assert quantize in {tensor.type for tensor in ours.tensors.values()}
        for name, tensor in theirs.tensors.items():
            assert ours.tensors[name].type == tensor.type
            np.testing.assert_array_equal(ours.data(name), theirs.data(name))
        key = "general.file_type"
        assert ours.metadata[key] == theirs.metadata[key]
        assert len(ours.tensors) == len(theirs.tensors)


OF_TINY = {
    "llama": TinyDirectory("LlamaForCausalLM", "llama", config={"vocab_size": 270}),
    "qwen2": TinyDirectory(
        "Qwen2ForCausalLM", "qwen2", layer=DIRECTORIES["qwen2"].layer, config={"vocab_size": 270}
    ),
}


@pytest.mark.parametrize("name", OF_TINY)
def test_a_converted_model_answers_as_the_file_that_its_weights_are_of(name: str, tmp_path: Path):
    tiny = OF_TINY[name]
    original = write_tiny(tmp_path / "tiny.gguf", TINY[name])
    with GgufFile(original) as file:
        weights = {
            source: file.dequantize(gguf_name(source, name)).reshape(shape)
            for source, shape in shapes(tiny).items()
        }
    if name in PAIRED:
        for source, values in weights.items():
            if "q_proj" in source or "k_proj" in source:
                heads = values.reshape(len(values) // 16, 8, 2, -1)
                weights[source] = heads.swapaxes(1, 2).reshape(values.shape)
    directory = write_directory(tmp_path / "in", tiny, weights, dtype="F32")
    convert(convert_safetensors, files_in(directory), tmp_path / "out.gguf")
    with closing(CpuBackend()) as backend:
        tokens = [5, 9, 2, 77, 266, 31]
        ours, theirs = (
            all_logits(load_file(backend, path), tokens) for path in (tmp_path / "out.gguf", original)
        )
    np.testing.assert_array_equal(ours, theirs)


def test_what_is_not_known_is_refused_by_name(tmp_path: Path):
    tiny = DIRECTORIES["qwen2"]
    weights = random_weights(tiny)
    extra = weights | {"model.layers.0.self_attn.sinks": np.zeros(6, np.float32)}
    directory = write_directory(tmp_path / "in", tiny, extra)
    with pytest.raises(ConversionError, match=r"self_attn\.sinks"):
        convert(convert_safetensors, files_in(directory), tmp_path / "out.gguf")
    (directory / "config.json").write_text(json.dumps({"architectures": ["WhisperModel"]}))
    with pytest.raises(ConversionError, match="WhisperModel"):
        convert(convert_safetensors, files_in(directory), tmp_path / "out.gguf")
