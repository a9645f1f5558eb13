"""Encoders, converted: their tensors' rows, how they pool, and vocabularies of WordPiece and Unigram."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from puna.convert.errors import ConversionError
from puna.convert.safetensors import convert_safetensors
from puna.gguf import GgufFile, Metadata
from tests.convert.converting import convert, files_in
from tests.convert.directories import safetensors

pytestmark = pytest.mark.native

WIDTH, FFN, VOCAB, POSITIONS = 16, 24, 9, 12
SIZES = {"hidden_size": WIDTH, "intermediate_size": FFN, "num_attention_heads": 2, "num_hidden_layers": 2}
BERT_LAYER = {
    "attention.self.query": (WIDTH, WIDTH),
    "attention.self.key": (WIDTH, WIDTH),
    "attention.self.value": (WIDTH, WIDTH),
    "attention.output.dense": (WIDTH, WIDTH),
    "attention.output.LayerNorm": (WIDTH,),
    "intermediate.dense": (FFN, WIDTH),
    "output.dense": (WIDTH, FFN),
    "output.LayerNorm": (WIDTH,),
}
WORD_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##re", "a"]
UNIGRAM = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁the", -3.5), ("re", -4.0)]
CHARSMAP = bytes([4, 0, 0, 0, 7, 7, 7, 7, 255])


def write(directory: Path, model_class: str, config: dict[str, Any], *more: str) -> dict[str, NDArray[Any]]:
    """A directory of a BERT with random weights, and those; more: of its own matrices."""
    rng = np.random.default_rng(1)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (VOCAB, WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
        "pooler.dense.weight": (WIDTH, WIDTH),
        "pooler.dense.bias": (WIDTH,),
        **dict.fromkeys(more, (WIDTH, WIDTH)),
    }
    for layer in range(2):
        for name, shape in BERT_LAYER.items():
            shapes[f"encoder.layer.{layer}.{name}.weight"] = shape
            shapes[f"encoder.layer.{layer}.{name}.bias"] = shape[:1]
    weights = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    directory.mkdir()
    positions = {"max_position_embeddings": POSITIONS, "layer_norm_eps": 1e-12, "type_vocab_size": 2}
    named = {"architectures": [model_class], **SIZES, **positions, **config}
    (directory / "config.json").write_text(json.dumps(named))
    content = safetensors({name: ("F32", values) for name, values in weights.items()})
    (directory / "model.safetensors").write_bytes(content)
    return weights


def special(text: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": text, "type_id": 0}}


def write_tokenizer(
    directory: Path, model: dict[str, Any], normalizer: dict[str, Any], ends: tuple[str, str], between: int
) -> None:
    """between: how many tokens separate two texts."""
    begin, end = map(special, ends)
    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}
    template = {
        "type": "TemplateProcessing",
        "single": [begin, a, end],
        "pair": [begin, a, *[end] * between, b, end],
    }
    texts = [text if isinstance(text, str) else text[0] for text in model["vocab"]]
    added = [{"id": i, "content": text, "special": True} for i, text in enumerate(texts) if text[0] in "[<"]
    tokenizer = {"model": model, "added_tokens": added, "normalizer": normalizer, "post_processor": template}
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))


def converted(directory: Path, output: Path) -> Metadata:
    convert(convert_safetensors, files_in(directory), output)
    with GgufFile(output) as file:
        return file.metadata


def said(metadata: Metadata, prefix: str) -> dict[str, Any]:
    return {
        key.removeprefix(prefix): [*value] if isinstance(value, list | np.ndarray) else value
        for key in metadata
        if key.startswith(prefix) and (value := metadata[key]) is not None
    }


def test_what_is_no_gelu_is_refused(tmp_path: Path):
    write(tmp_path / "in", "BertModel", {"hidden_act": "relu"})
    with pytest.raises(ConversionError, match="hidden_act is not known"):
        convert(convert_safetensors, files_in(tmp_path / "in"), tmp_path / "out.gguf")


def test_bert(tmp_path: Path):
    weights = write(tmp_path / "in", "BertModel", {})
    model = {"type": "WordPiece", "vocab": {text: i for i, text in enumerate(WORD_PIECES)}}
    normalizer = {"type": "BertNormalizer", "lowercase": True, "strip_accents": None}
    write_tokenizer(tmp_path / "in", model, normalizer, ("[CLS]", "[SEP]"), 1)
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": {"content": "[MASK]"}}
    (tmp_path / "in" / "tokenizer_config.json").write_text(json.dumps(names))
    (tmp_path / "in" / "modules.json").write_text('[{"type": "st.models.Pooling", "path": "1_Pooling"}]')
    (tmp_path / "in" / "1_Pooling").mkdir()
    (tmp_path / "in" / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    metadata = converted(tmp_path / "in", tmp_path / "out.gguf")
    assert said(metadata, "bert.") == {
        "block_count": 2,
        "context_length": POSITIONS,
        "embedding_length": WIDTH,
        "feed_forward_length": FFN,
        "attention.head_count": 2,
        "attention.layer_norm_epsilon": pytest.approx(1e-12),
        "attention.causal": False,
        "pooling_type": 2,
        "vocab_size": VOCAB,
    }
    assert said(metadata, "tokenizer.ggml.") == {
        "model": "bert",
        "pre": "jina-v2-en",
        "tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁the", "re", "▁a", "▁[PAD8]"],
        "token_type": [3, 3, 3, 3, 3, 1, 1, 1, 5],
        "bos_token_id": 2,
        "eos_token_id": 3,
        "seperator_token_id": 3,
        "mask_token_id": 4,
        "add_bos_token": True,
        "add_eos_token": True,
        "add_sep_token": False,
        "normalizer.lowercase": True,
        "token_type_count": 2,
    }
    read = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    names_of = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, 2)
    expected = {
        names_of.get_name(n, (".weight", ".bias")): v for n, v in weights.items() if "pooler" not in n
    }
    assert read.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(read[name], values)


def write_ranker(directory: Path) -> dict[str, NDArray[Any]]:
    """With Unigram; its positions begin behind the padding."""
    config = {"pad_token_id": 1, "id2label": {"0": "LABEL_0"}}
    own = ("classifier.dense.weight", "classifier.out_proj.weight")
    weights = write(directory, "XLMRobertaForSequenceClassification", config, *own)
    model = {"type": "Unigram", "vocab": UNIGRAM, "unk_id": 3}
    normalizer = {
        "type": "Sequence",
        "normalizers": [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(CHARSMAP).decode()}],
    }
    write_tokenizer(directory, model, normalizer, ("<s>", "</s>"), 2)
    names = {"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(names))
    return weights


def test_a_ranker_with_unigram_whose_positions_begin_behind_the_padding(tmp_path: Path):
    weights = write_ranker(tmp_path / "in")
    metadata = converted(tmp_path / "in", tmp_path / "out.gguf")
    assert metadata["bert.context_length"] == POSITIONS - 2
    assert metadata["bert.pooling_type"] == 4
    assert metadata["bert.classifier.output_labels"] == ["LABEL_0"]
    assert said(metadata, "tokenizer.ggml.") == {
        "model": "t5",
        "pre": "default",
        "tokens": ["<s>", "<pad>", "</s>", "<unk>", "▁the", "re", "[PAD6]", "[PAD7]", "[PAD8]"],
        "token_type": [3, 3, 3, 2, 1, 1, 5, 5, 5],
        "scores": [0, 0, 0, 0, -3.5, -4, -10000, -10000, -10000],
        "add_space_prefix": True,
        "remove_extra_whitespaces": True,
        "precompiled_charsmap": [*CHARSMAP],
        "bos_token_id": 0,
        "eos_token_id": 2,
        "seperator_token_id": 2,
        "padding_token_id": 1,
        "add_bos_token": True,
        "add_eos_token": True,
        "add_sep_token": True,
        "token_type_count": 2,
    }
    read = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    positions = weights["embeddings.position_embeddings.weight"]
    np.testing.assert_array_equal(read["position_embd.weight"], positions[2:])
    np.testing.assert_array_equal(read["cls.output.weight"], weights["classifier.out_proj.weight"])


def test_minilm(minilm_path: Path):
    with GgufFile(minilm_path) as file:
        assert len(file.tensors) == 101
        tokens = file.metadata["tokenizer.ggml.tokens"]
        assert (tokens[101], tokens[1996], tokens[2015]) == ("[CLS]", "▁the", "s")
        assert file.metadata["bert.pooling_type"] == 1
