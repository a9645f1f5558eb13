"""Families whose files do not say which tokens end texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from puna.convert.safetensors import convert_safetensors
from puna.gguf import GgufFile
from tests.convert.converting import convert, files_in
from tests.convert.directories import byte_level_tokenizer, sentencepiece_model
from tests.convert.models.recorded import RECORDED
from tests.convert.models.shapes import write

pytestmark = pytest.mark.native

PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "[UNUSED_1]", "[UNUSED_2]"]


@pytest.mark.parametrize(("has_chat", "eos"), [(True, 260), (False, 2)])
def test_internlm2(has_chat: bool, eos: int, tmp_path: Path):
    directory = write(tmp_path / "in", RECORDED["internlm2"])
    (directory / "tokenizer.model").write_bytes(sentencepiece_model(PIECES))
    added = {"260": {"content": "<|im_end|>", "special": True}} if has_chat else {}
    settings = {"eos_token": "</s>", "added_tokens_decoder": added}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    (directory / "tokenizer.json").unlink()
    if not has_chat:
        config = json.loads((directory / "config.json").read_text()) | {"eos_token_id": 2}
        (directory / "config.json").write_text(json.dumps(config))
    convert(convert_safetensors, files_in(directory), tmp_path / "out.gguf")
    with GgufFile(tmp_path / "out.gguf") as file:
        assert file.metadata["tokenizer.ggml.eos_token_id"] == eos
        assert [*file.metadata["tokenizer.ggml.token_type"][259:261]] == [5, 3 if has_chat else 5]


def test_hunyuan(tmp_path: Path):
    directory = write(tmp_path / "in", RECORDED["hunyuan-dense"])
    config = json.loads((directory / "config.json").read_text()) | {"eod_token_id": 7}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "generation_config.json").write_text('{"eos_token_id": [9, 7]}')
    convert(convert_safetensors, files_in(directory), tmp_path / "out.gguf")
    with GgufFile(tmp_path / "out.gguf") as file:
        assert file.metadata["tokenizer.ggml.eos_token_id"] == 7
        assert file.metadata["tokenizer.ggml.eot_token_id"] == 9


def test_falcon_cuts_words_in_its_way(tmp_path: Path):
    directory = write(tmp_path / "in", RECORDED["falcon"])
    tokenizer = byte_level_tokenizer("")
    tokenizer["pre_tokenizer"]["pretokenizers"] = [
        {"type": "Punctuation", "behavior": "Contiguous"},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        {"type": "Digits", "individual_digits": False},
        {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False},
    ]
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    convert(convert_safetensors, files_in(directory), tmp_path / "out.gguf")
    with GgufFile(tmp_path / "out.gguf") as file:
        assert file.metadata["tokenizer.ggml.pre"] == "falcon"
