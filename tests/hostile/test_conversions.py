"""Damaged and malicious safetensors, configurations and tokenizers are converted or refused with an error."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from puna.backends.cpu import CpuBackend
from puna.convert.adapter import convert_adapter
from puna.convert.errors import ConversionError
from puna.convert.in_place import make_header
from puna.convert.job import BASE_MODEL
from puna.convert.safetensors import convert_safetensors
from tests.convert.converting import Conversion, convert, files_in
from tests.convert.directories import DIRECTORIES, random_weights, write_directory
from tests.convert.models.test_encoders import write_ranker
from tests.convert.test_adapter import write_adapter
from tests.convert.test_in_place import opened
from tests.forward import all_logits
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

NUM_MUTANTS = 25
"""Of each file."""
SPLICES = (
    b"-1", b"0", b"1e400", b"4294967297", b"18446744073709551616", b"null", b"[]", b"{}", b'""', b'"\\ud800"',
    b"true", b"[[[[[[[[[[", b"\xff\x00", b"", b'"weight"', b"NaN",
)  # fmt: skip


def mutant(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut, with other bytes in it, or with a token replaced."""
    end = min(len(content), 20_000)  # what is behind is weights
    for _ in range(int(rng.integers(1, 4))):
        begin = int(rng.integers(0, end))
        kind = rng.integers(0, 4)
        if kind == 0:
            content = content[:begin]
        elif kind == 1:
            content = content[:begin] + rng.bytes(int(rng.integers(1, 9))) + content[begin + 4 :]
        else:
            begin = max(content.find(b":", begin), content.find(b",", begin)) + 1
            stop = min(
                (i for i in (content.find(c, begin) for c in (b",", b"}", b"]")) if i > 0), default=begin
            )
            content = content[:begin] + SPLICES[rng.integers(len(SPLICES))] + content[stop:]
        end = max(1, min(len(content), 20_000))
    return content


def is_used_or_refused(conversion: Conversion, files: dict[str, Path], output: Path) -> bool:
    """Whether it was used."""
    try:
        convert(conversion, files, output)
    except ConversionError as error:
        assert 0 < len(str(error)) < 2000  # noqa: PT017
        return False
    return True


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("llama", "config.json"),
        ("llama", "tokenizer.json"),
        ("llama", "tokenizer_config.json"),
        ("llama", "model.safetensors"),
        ("mistral", "tokenizer.model"),
        ("qwen3moe", "config.json"),
    ],
)
def test_mutants_of_a_models_files(name: str, file: str, tmp_path: Path):
    tiny = DIRECTORIES[name]
    directory = write_directory(tmp_path / "in", tiny, random_weights(tiny))
    original = (directory / file).read_bytes()
    rng = np.random.default_rng(1)
    used = []
    for _ in range(NUM_MUTANTS):
        (directory / file).write_bytes(mutant(original, rng))
        used.append(is_used_or_refused(convert_safetensors, files_in(directory), tmp_path / "out"))
    assert not all(used)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "modules.json"])
def test_mutants_of_an_encoders_files(file: str, tmp_path: Path):
    directory = tmp_path / "in"
    write_ranker(directory)
    (directory / "modules.json").write_text(
        '[{"type": "Pooling", "path": "1_Pooling"}, {"type": "Normalize"}]'
    )
    original = (directory / file).read_bytes()
    rng = np.random.default_rng(3)
    for _ in range(NUM_MUTANTS):
        (directory / file).write_bytes(mutant(original, rng))
        is_used_or_refused(convert_safetensors, files_in(directory), tmp_path / "out")


def test_mutants_of_weights_that_stay_where_they_are(tmp_path: Path):
    tiny = DIRECTORIES["qwen2"]
    directory = write_directory(tmp_path / "in", tiny, random_weights(tiny))
    original = (directory / "model.safetensors").read_bytes()
    rng = np.random.default_rng(4)
    num_used = 0
    with closing(CpuBackend(num_threads=1)) as backend:
        for _ in range(NUM_MUTANTS):
            (directory / "model.safetensors").write_bytes(mutant(original, rng))
            if is_used_or_refused(make_header, files_in(directory), tmp_path / "out"):
                with opened(tmp_path / "out", directory) as source:
                    all_logits(backend.load(source), [1, 2, 3])
                num_used += 1
    assert num_used < NUM_MUTANTS


def test_mutants_of_an_adapters_files(tmp_path: Path):
    base = write_tiny(tmp_path / "base.gguf", TINY["llama"])
    write_adapter(tmp_path / "in")
    rng = np.random.default_rng(2)
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        original = (tmp_path / "in" / file).read_bytes()
        for _ in range(NUM_MUTANTS):
            (tmp_path / "in" / file).write_bytes(mutant(original, rng))
            is_used_or_refused(
                convert_adapter, {**files_in(tmp_path / "in"), BASE_MODEL: base}, tmp_path / "out"
            )
        (tmp_path / "in" / file).write_bytes(original)


Change = Callable[[dict[str, Any]], object]


def entry(header: dict[str, Any]) -> dict[str, Any]:
    return header["model.norm.weight"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda header: entry(header).update(data_offsets=[0, 192]), "overlap|do not fit"),
        (lambda header: entry(header).update(data_offsets=[1 << 60, (1 << 60) + 192]), "would lie"),
        (lambda header: entry(header).update(data_offsets=[192, 0]), "would lie"),
        (lambda header: entry(header).update(shape=[1 << 62, 1 << 62]), "do not fit"),
        (lambda header: entry(header).update(shape=[-1, -96]), "would lie"),
        (lambda header: entry(header).update(shape=[1] * 9), "too long"),
        (lambda header: entry(header).update(dtype="Q9"), "not known"),
        (lambda header: entry(header).update(dtype="I16"), "cannot be converted"),
        (
            lambda header: header.update({"model.layers.7.input_layernorm.weight": entry(header)}),
            "layer|overlap",
        ),
        (lambda header: header.update({"\u202e": entry(header)}), "overlap|not known"),
    ],
)
def test_headers_that_lie(change: Change, error: str, tmp_path: Path):
    tiny = DIRECTORIES["llama"]
    directory = write_directory(tmp_path / "in", tiny, random_weights(tiny))
    content = (directory / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    change(header)
    changed = json.dumps(header).encode()
    lying = struct.pack("<Q", len(changed)) + changed + content[8 + length :]
    (directory / "model.safetensors").write_bytes(lying)
    with pytest.raises(ConversionError, match=error):
        convert(convert_safetensors, files_in(directory), tmp_path / "out")
