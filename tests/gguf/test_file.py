"""What a well-made file says arrives in Python as it was written."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from puna.gguf import GgufError, GgufFile, TensorInfo
from tests.gguf.encode import ARRAY, BOOL, INT32, STRING, UINT32, Tensor, array, gguf_bytes, key, string, u32

pytestmark = pytest.mark.native

SCALARS: dict[str, tuple[gguf.GGUFValueType, Any]] = {
    "uint8": (gguf.GGUFValueType.UINT8, 255),
    "int8": (gguf.GGUFValueType.INT8, -128),
    "uint16": (gguf.GGUFValueType.UINT16, 65535),
    "int16": (gguf.GGUFValueType.INT16, -32768),
    "uint32": (gguf.GGUFValueType.UINT32, 2**32 - 1),
    "int32": (gguf.GGUFValueType.INT32, -(2**31)),
    "uint64": (gguf.GGUFValueType.UINT64, 2**64 - 1),
    "int64": (gguf.GGUFValueType.INT64, -(2**63)),
    "float32": (gguf.GGUFValueType.FLOAT32, 0.15625),
    "float64": (gguf.GGUFValueType.FLOAT64, 0.1),
    "true": (gguf.GGUFValueType.BOOL, True),
    "false": (gguf.GGUFValueType.BOOL, False),
    "text": (gguf.GGUFValueType.STRING, "llama 🦙"),
    "empty": (gguf.GGUFValueType.STRING, ""),
}
NUMPY = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def written(path: Path, metadata: dict[str, tuple[gguf.GGUFValueType, Any]]) -> GgufFile:
    writer = gguf.GGUFWriter(path, "llama")
    for name, (value_type, value) in metadata.items():
        writer.add_key_value(name, value, value_type)
    writer.add_tensor("blk.0.weight", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("half", np.array([1.5, -2.0], np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufFile(path)


@pytest.mark.parametrize("name", SCALARS)
def test_value_arrives_with_its_type(name: str, tmp_path: Path) -> None:
    value_type, value = SCALARS[name]
    got = written(tmp_path / "a.gguf", {"k": (value_type, value)}).metadata["k"]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize("dtype", NUMPY)
def test_numbers_arrive_as_arrays(dtype: str, tmp_path: Path) -> None:
    values = np.array([0, 1, 100, 27], dtype)
    # The odd key length leaves the elements unaligned in the file.
    data = key("key", ARRAY, array(SCALARS[dtype][0], len(values), values.tobytes()))
    got = GgufFile(write(tmp_path / "a.gguf", gguf_bytes([data]))).metadata["key"]
    assert got.dtype == values.dtype
    np.testing.assert_array_equal(got, values)
    assert not got.flags.writeable


def test_bools_arrive_as_an_array(tmp_path: Path) -> None:
    data = key("k", ARRAY, array(BOOL, 3, b"\x01\x00\x01"))
    got = GgufFile(write(tmp_path / "a.gguf", gguf_bytes([data]))).metadata["k"]
    assert got.dtype == np.bool_
    assert got.tolist() == [True, False, True]


def test_strings_arrive_as_a_list(tmp_path: Path) -> None:
    texts = ["", "a", "Ġthe", "🦙" * 100, *map(str, range(5000))]
    file = written(tmp_path / "a.gguf", {})
    metadata = {"k": (gguf.GGUFValueType.ARRAY, texts)}
    file = written(tmp_path / "b.gguf", metadata)
    assert file.metadata["k"] == texts


def test_bytes_that_are_no_utf8_survive(tmp_path: Path) -> None:
    data = key("k", ARRAY, array(STRING, 2, string(b"\xff\x80") + string("ok")))
    got = GgufFile(write(tmp_path / "a.gguf", gguf_bytes([data]))).metadata["k"]
    assert [text.encode("utf-8", "surrogateescape") for text in got] == [b"\xff\x80", b"ok"]


def test_nested_arrays_arrive_as_lists(tmp_path: Path) -> None:
    numbers = array(INT32, 2, np.array([5, -6], "<i4").tobytes())
    texts = array(STRING, 1, string("x"))
    data = key("k", ARRAY, array(ARRAY, 3, numbers + texts + array(INT32, 0, b"")))
    got = GgufFile(write(tmp_path / "a.gguf", gguf_bytes([data]))).metadata["k"]
    assert [list(inner) for inner in got] == [[5, -6], ["x"], []]


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_are_read(version: int, tmp_path: Path) -> None:
    keys = [key("b", UINT32, u32(1)), key("a", UINT32, u32(2))]
    file = GgufFile(write(tmp_path / "a.gguf", gguf_bytes(keys, version=version)))
    assert file.metadata.version == version
    assert list(file.metadata.items()) == [("b", 1), ("a", 2)]  # in the file's order
    assert file.tensors == {}


def test_metadata_is_a_mapping(tmp_path: Path) -> None:
    metadata = written(tmp_path / "a.gguf", {"k": (gguf.GGUFValueType.UINT8, 7)}).metadata
    assert list(metadata) == ["general.architecture", "k"]
    assert len(metadata) == 2
    assert "k" in metadata
    assert "none" not in metadata
    assert metadata.get("none", 3) == 3
    with pytest.raises(KeyError, match="none"):
        metadata["none"]


def test_tensors_are_indexed_and_read_in_place(tmp_path: Path) -> None:
    file = written(tmp_path / "a.gguf", {})
    info = file.tensors["blk.0.weight"]
    assert info == TensorInfo("blk.0.weight", "F32", (4, 3), info.offset, 48)
    expected = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert (tmp_path / "a.gguf").read_bytes()[info.offset : info.offset + 48] == expected.tobytes()
    data = file.data("blk.0.weight")
    assert data.tobytes() == expected.tobytes()
    assert not data.flags.writeable
    np.testing.assert_array_equal(file.dequantize("blk.0.weight"), expected)
    assert file.dequantize("half").tolist() == [1.5, -2.0]


def test_alignment_of_the_file_is_respected(tmp_path: Path) -> None:
    keys = [key("general.alignment", UINT32, u32(256))]
    tensors = [Tensor("a", (2,)), Tensor("b", (2,), offset=256)]
    numbers = np.array([1, 2, 3, 4], "<f4").tobytes()
    data = numbers[:8] + bytes(248) + numbers[8:]
    file = GgufFile(write(tmp_path / "a.gguf", gguf_bytes(keys, tensors, data, alignment=256)))
    assert file.dequantize("a").tolist() == [1, 2]
    assert file.dequantize("b").tolist() == [3, 4]


def test_scalar_tensor_has_one_value(tmp_path: Path) -> None:
    data = np.array([7], "<f4").tobytes()
    file = GgufFile(write(tmp_path / "a.gguf", gguf_bytes(tensors=[Tensor(shape=())], data=data)))
    assert file.dequantize("t").shape == ()
    assert file.dequantize("t") == 7


def test_unknown_tensor_type_opens_but_is_not_read(tmp_path: Path) -> None:
    file = GgufFile(write(tmp_path / "a.gguf", gguf_bytes(tensors=[Tensor(type=99)], data=bytes(16))))
    assert file.tensors["t"].type == "type 99"
    assert file.tensors["t"].num_bytes == 0
    for read in (file.data, file.dequantize):
        with pytest.raises(GgufError, match=r"a\.gguf: tensor 't': type 99 is not supported"):
            read("t")


def test_type_without_dequantization_gives_its_bytes_only(tmp_path: Path) -> None:
    tensor = Tensor(type=gguf.GGMLQuantizationType.I8)
    file = GgufFile(write(tmp_path / "a.gguf", gguf_bytes(tensors=[tensor], data=bytes([1, 2, 3, 4]))))
    assert file.data("t").tolist() == [1, 2, 3, 4]
    with pytest.raises(GgufError, match="I8 is not supported"):
        file.dequantize("t")


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    file = written(tmp_path / "a.gguf", {})
    with pytest.raises(GgufError, match=r"a\.gguf: no tensor 'output.weight'"):
        file.data("output.weight")


def test_views_and_metadata_outlive_the_file(tmp_path: Path) -> None:
    with written(tmp_path / "a.gguf", {"k": (gguf.GGUFValueType.ARRAY, ["x"])}) as file:
        data, metadata = file.data("half"), file.metadata
    with pytest.raises(GgufError, match="the file is closed"):
        file.data("half")
    del file
    gc.collect()
    assert data.view(np.float16).tolist() == [1.5, -2.0]
    assert metadata["k"] == ["x"]
    assert "a.gguf" in Path("/proc/self/maps").read_text()
    del data, metadata
    gc.collect()
    assert "a.gguf" not in Path("/proc/self/maps").read_text()


def test_mapping_lets_the_system_use_large_pages(tmp_path: Path) -> None:
    """Its address is aligned to them as the file's first byte is, and what was reserved around it is free."""
    large, page = 2 << 20, 4096
    path = write(tmp_path / "x.gguf", gguf_bytes(tensors=[Tensor("x", (large,))], data=bytes(4 * large)))
    before = _mappings()
    with GgufFile(path) as file:
        assert file.tensors["x"].shape == (large,)
        new = [line for line in _mappings() if line not in before and "x.gguf" in line]
        begin, end = (int(address, 16) for address in new[0].split()[0].split("-"))
        assert (begin % large, end - begin) == (0, -(-path.stat().st_size // page) * page)
        assert not [line for line in _mappings() if "---p" in line and line not in before]


def _mappings() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()
