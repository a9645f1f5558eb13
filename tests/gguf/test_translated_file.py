"""Files in Ollama's own forms are written anew as llama.cpp's converter makes them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from puna.gguf import GgufError, GgufFile, read_metadata, sharing
from puna.gguf.file import open_file
from puna.gguf.sharing import share
from puna.gguf.translated_file import Written, write_translated
from puna.gguf.writer import BLOCK_BYTES, NewTensor, array, string, write_header
from tests.tiny.published import ENCODER_FORMS, FORMS, write_both

pytestmark = pytest.mark.native


def written(path: Path) -> tuple[GgufFile, Written]:
    """The file beside it, read as it is, and what was shared."""
    output = path.with_suffix(".written")
    with open_file(path) as source, output.open("w+b") as target:
        metadata = read_metadata(source, path.name, as_stored=True)
        assert metadata.is_translated
        result = write_translated(metadata, source, target.fileno())
    with open_file(output) as descriptor:
        return GgufFile.from_descriptor(descriptor, output.name, as_published=True), result


@pytest.mark.parametrize("name", [*FORMS, *ENCODER_FORMS])
def test_it_is_as_the_converter_makes_it(name: str, tmp_path: Path):
    converted, published = write_both(tmp_path, name)
    found, result = written(published)
    assert published.with_suffix(".written").stat().st_size == result.num_bytes
    with GgufFile(converted) as expected:
        assert found.tensors.keys() == expected.tensors.keys()
        for key, tensor in expected.tensors.items():
            assert (found.tensors[key].type, found.tensors[key].shape) == (tensor.type, tensor.shape)
            assert np.array_equal(found.data(key), expected.data(key))
        architecture = expected.metadata["general.architecture"]
        assert found.metadata["general.architecture"] == architecture
        own = [key for key in expected.metadata if key.startswith((f"{architecture}.", "tokenizer."))]
        for key in own:
            if key in expected.metadata and key not in ("tokenizer.ggml.pre", "tokenizer.ggml.model"):
                np.testing.assert_array_equal(found.metadata[key], expected.metadata[key])


def test_tensors_follow_each_other_and_the_first_lies_in_its_block_as_it_did(tmp_path: Path):
    _, published = write_both(tmp_path, "gemma3")
    found, _ = written(published)
    ends = [tensor.offset + -(-tensor.num_bytes // 32) * 32 for tensor in found.tensors.values()]
    assert [tensor.offset for tensor in found.tensors.values()][1:] == ends[:-1]
    with GgufFile(published) as old:
        moved = {name: found.tensors[name].offset - old.tensors[name].offset for name in found.tensors}
    bytes_that_stay = sum(found.tensors[name].num_bytes for name in moved if moved[name] % BLOCK_BYTES == 0)
    assert bytes_that_stay > sum(tensor.num_bytes for tensor in found.tensors.values()) / 2


def test_a_file_that_is_cut_short_meanwhile_is_an_error(tmp_path: Path):
    _, published = write_both(tmp_path, "gemma3")
    with open_file(published) as source, (tmp_path / "new").open("w+b") as target:
        metadata = read_metadata(source, "cut", as_stored=True)
        os.truncate(published, published.stat().st_size // 2)
        with pytest.raises(GgufError, match="cut: the file has been cut short"):
            write_translated(metadata, source, target.fileno())


def test_a_file_that_says_its_tensors_are_in_others_is_not_written_again_and_again(tmp_path: Path):
    tensors = [NewTensor(f"blk.{number}.attn_q.weight", "F32", (4096,)) for number in range(64)]
    metadata = {
        "general.architecture": string("olmo3"),
        "puna.tensors.places": array("uint32", [1] * 64),
        "puna.tensors.file": array("uint32", range(1, 65)),
        "puna.tensors.offset": array("uint64", [0] * 64),
    }
    with (tmp_path / "old").open("w+b") as source, (tmp_path / "new").open("w+b") as target:
        write_header(source, metadata, tensors, outside={tensor.name for tensor in tensors})
        source.truncate(1 << 15)
        metadata = read_metadata(source.fileno(), "old", as_stored=True)
        with pytest.raises(GgufError, match="old: its tensors are in other files"):
            write_translated(metadata, source.fileno(), target.fileno())
        assert not target.seek(0, os.SEEK_END)


def test_some_of_the_disk_stays_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sharing, "_SPARE_BYTES", 1 << 60)
    with (tmp_path / "old").open("w+b") as source, (tmp_path / "new").open("w+b") as target:
        source.write(bytes(100))
        source.flush()
        with pytest.raises(OSError, match="MiB of the disk stay free"):
            share(source.fileno(), 0, target.fileno(), 0, 100)


@pytest.mark.parametrize(
    ("begin", "place", "num_bytes"),
    [
        (0, 0, 3 * BLOCK_BYTES),
        (32, 32 + BLOCK_BYTES, 5 * BLOCK_BYTES),
        (100, 4196, 50),
        (32, 64, 9000),
        (9, 9, 0),
    ],
)
def test_parts_are_the_same_whether_they_are_shared_or_not(
    begin: int, place: int, num_bytes: int, tmp_path: Path
):
    content = np.random.default_rng(0).bytes(begin + num_bytes + 7)
    (tmp_path / "old").write_bytes(content)
    with (tmp_path / "old").open("rb") as old, (tmp_path / "new").open("w+b") as new:
        new.truncate(place + num_bytes)
        share(old.fileno(), begin, new.fileno(), place, num_bytes)
    assert (tmp_path / "new").read_bytes() == bytes(place) + content[begin : begin + num_bytes]
