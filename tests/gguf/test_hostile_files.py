"""A file is a stranger's: whatever is in it, it opens or is refused with a text that says why."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puna.gguf import GgufError, GgufFile, open_file, read_metadata
from tests.gguf.encode import (
    ARRAY,
    BOOL,
    FLOAT32,
    INT32,
    STRING,
    UINT8,
    UINT32,
    Tensor,
    array,
    gguf_bytes,
    key,
    string,
    u32,
    u64,
)

pytestmark = pytest.mark.native

HUGE = [2**31, 2**32, 2**61, 2**63 - 1, 2**63, 2**64 - 1]
DATA = np.arange(4, dtype="<f4").tobytes()


def small_file() -> bytes:
    """Valid, with one of everything that has a length, a count, a type or an offset."""
    nested = array(ARRAY, 2, array(STRING, 1, string("x")) + array(INT32, 1, u32(7)))
    keys = [
        key("general.architecture", STRING, string("llama")),
        key("general.alignment", UINT32, u32(32)),
        key("flag", BOOL, b"\x01"),
        key("numbers", ARRAY, array(FLOAT32, 2, bytes(8))),
        key("words", ARRAY, array(STRING, 3, string("a") + string("") + string("bc"))),
        key("nested", ARRAY, nested),
    ]
    tensors = [Tensor("a", (4,)), Tensor("b", (32, 2), type=2, offset=32)]
    return gguf_bytes(keys, tensors, DATA + bytes(16) + bytes(36))


def use(path: Path) -> None:
    """Opens the file and reads everything in it."""
    with GgufFile(path) as file:
        dict(file.metadata)
        for name, info in file.tensors.items():
            if not info.type.startswith("type "):
                file.data(name).tobytes()


def refused(tmp_path: Path, data: bytes, match: str) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(data)
    with pytest.raises(GgufError, match=rf"hostile\.gguf: .*{match}"):
        use(path)


@pytest.mark.parametrize("length", range(len(small_file())))
def test_truncated_anywhere_is_refused(length: int, tmp_path: Path) -> None:
    match = "the file is empty" if length == 0 else "does not fit|more than the file can hold|beyond the end"
    refused(tmp_path, small_file()[:length], match)


def test_what_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, b"PK\x03\x04" + bytes(100), r"not a GGUF file: it starts with 'PK\\x03\\x04'")
    refused(tmp_path, gguf_bytes(version=1), "version 1 is not supported, only 2 and 3")
    refused(tmp_path, gguf_bytes(version=4), "version 4 is not supported")
    refused(tmp_path, gguf_bytes(version=3 << 24), "big-endian")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, match in [
        (tmp_path / "none", "cannot open the file: No such file"),
        (tmp_path, "not a regular file"),
        (tmp_path / "pipe", "not a regular file"),
        (Path(os.fsdecode(b"/no/\xff")), "cannot open the file"),
        (Path("a\0b"), "cannot open the file: embedded null byte"),
        (Path("/dev/zero"), "not a regular file"),
    ]:
        with pytest.raises(GgufError, match=match):
            GgufFile(path)


@pytest.mark.parametrize("name", ["general.architecture", "general.type", "adapter.type"])
def test_what_kind_of_file_it_is_is_a_text(name: str, tmp_path: Path) -> None:
    for values in (array(UINT32, 0, b""), array(UINT32, 2, bytes(8)), array(STRING, 1, string("llama"))):
        refused(tmp_path, gguf_bytes([key(name, ARRAY, values)]), f"metadata {name} is not a string")


@pytest.mark.parametrize("count", [4, *HUGE])
def test_counts_beyond_the_file_are_refused(count: int, tmp_path: Path) -> None:
    refused(tmp_path, gguf_bytes(num_keys=count), "number of metadata keys is .* more than the file can hold")
    refused(tmp_path, gguf_bytes(num_tensors=count), "number of tensors is .* more than the file can hold")


@pytest.mark.parametrize("count", [17, *HUGE])
@pytest.mark.parametrize("element_type", [UINT8, BOOL, FLOAT32, STRING, ARRAY])
def test_arrays_beyond_the_file_are_refused(element_type: int, count: int, tmp_path: Path) -> None:
    data = gguf_bytes([key("big", ARRAY, array(element_type, count, bytes(8)))], alignment=1)
    refused(tmp_path, data, f"metadata 'big': an array of {count} .*does not fit into the 8 bytes left")


@pytest.mark.parametrize("length", [14, *HUGE])
def test_strings_beyond_the_file_are_refused(length: int, tmp_path: Path) -> None:
    text = u64(length) + bytes(8)
    match = f"of {length} bytes does not fit into the 8 bytes left of the file"
    refused(tmp_path, gguf_bytes([key("s", STRING, text)], alignment=1), f"metadata 's': a string {match}")
    data = gguf_bytes([key("s", ARRAY, array(STRING, 1, text))], alignment=1)
    refused(tmp_path, data, f"metadata 's': a string {match}")
    data = gguf_bytes(num_keys=1, alignment=1) + text + bytes(5)
    refused(tmp_path, data, f"metadata key 0: its name of {length} bytes does not fit")


def test_hostile_counts_cost_no_memory(tmp_path: Path) -> None:
    """The claims of a small file must not decide what is allocated."""
    path = tmp_path / "hostile.gguf"
    hostile = [gguf_bytes(num_keys=2**40), gguf_bytes(num_tensors=2**40)]
    hostile += [gguf_bytes([key("k", ARRAY, array(t, 2**40, b""))]) for t in (UINT8, STRING, ARRAY)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in hostile:
        path.write_bytes(data)
        with pytest.raises(GgufError):
            use(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


@pytest.mark.parametrize("value_type", [13, 255, 2**32 - 1])
def test_unknown_value_types_are_refused(value_type: int, tmp_path: Path) -> None:
    refused(tmp_path, gguf_bytes([key("k", value_type, bytes(8))]), f"'k': unknown value type {value_type}")
    data = gguf_bytes([key("k", ARRAY, array(value_type, 1, bytes(8)))])
    refused(tmp_path, data, f"'k': unknown value type {value_type}")


def test_bools_are_zero_or_one(tmp_path: Path) -> None:
    refused(tmp_path, gguf_bytes([key("k", BOOL, b"\x02")]), "'k': a bool is 2")
    refused(tmp_path, gguf_bytes([key("k", ARRAY, array(BOOL, 2, b"\x01\x07"))]), "'k': a bool is 7")


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    value = array(UINT8, 0, b"")
    for _ in range(10000):
        value = array(ARRAY, 1, value)
    refused(tmp_path, gguf_bytes([key("k", ARRAY, value)]), "'k': arrays nested more than 2 deep")


def test_nested_arrays_hold_few_items(tmp_path: Path) -> None:
    """Of a few bytes each, they would take a hundred times that in memory."""
    inner = array(UINT8, 0, b"") * 70_000
    refused(
        tmp_path, gguf_bytes([key("k", ARRAY, array(ARRAY, 70_000, inner))]), "hold more than 65536 items"
    )
    inner = array(UINT8, 40_000, bytes(40_000)) * 2
    refused(tmp_path, gguf_bytes([key("k", ARRAY, array(ARRAY, 2, inner))]), "hold more than 65536 items")


def write_sparse(path: Path, header: bytes, size: int) -> Path:
    path.write_bytes(header)
    os.truncate(path, size)
    return path


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (u32(UINT8) + u64(2**24 + 1), "'k': an array of 16777217 items, more than 16777216"),
        (u32(STRING) + u64(2**21 + 1), "'k': an array of 2097153 items, more than 2097152"),
        (u32(STRING) + u64(1) + u64(2**24 + 1), "'k': a string of 16777217 bytes, more than 16777216"),
    ],
)
def test_values_longer_than_any_are_refused(value: bytes, match: str, tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "a.gguf", gguf_bytes([key("k", ARRAY, value)], alignment=1), 1 << 30)
    with pytest.raises(GgufError, match=match):
        GgufFile(path)


def test_names_longer_than_the_specification_has_them_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, gguf_bytes([key("k" * 65_536, UINT8, b"")]), "its name of 65536 bytes, more than 65535")
    data = gguf_bytes(tensors=[Tensor("t" * 65)], data=DATA)
    refused(tmp_path, data, "tensor 0: its name of 65 bytes, more than 64")


def test_more_keys_and_tensors_than_any_file_has_are_refused(tmp_path: Path) -> None:
    for counts in ({"num_keys": 65_537}, {"num_tensors": 65_537}):
        path = write_sparse(tmp_path / "a.gguf", gguf_bytes(**counts), 1 << 30)
        with pytest.raises(GgufError, match="is 65537, more than 65536"):
            GgufFile(path)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 32), (32, 0), (32, 64)])
def test_tensors_that_overlap_are_refused(first: int, second: int, tmp_path: Path) -> None:
    tensors = [Tensor("a", (12,), offset=first), Tensor("b", (12,), offset=second)]
    refused(tmp_path, gguf_bytes(tensors=tensors, data=bytes(128)), r"overlaps that of '[ab]'")


def test_a_file_that_is_cut_short_is_an_error_not_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    texts = [string(f"{i:08}") for i in range(50_000)]
    path.write_bytes(gguf_bytes([key("k", ARRAY, array(STRING, len(texts), b"".join(texts)))]))
    with open_file(path) as descriptor:
        metadata = read_metadata(descriptor, "a.gguf")
    chunks = metadata.chunks("k")
    assert len(next(chunks)) > 0
    os.truncate(path, 400_000)
    for read in (lambda: metadata["k"], lambda: list(chunks)):
        with pytest.raises(GgufError, match=r"a\.gguf: the file was cut short while it was read"):
            read()


def test_names_appear_once(tmp_path: Path) -> None:
    twice = [key("k", UINT8, b"\x01"), key("k", STRING, string("x"))]
    refused(tmp_path, gguf_bytes(twice), "metadata 'k': appears twice")
    refused(tmp_path, gguf_bytes(tensors=[Tensor(), Tensor()], data=DATA), "tensor 't': appears twice")


INVALID_UTF8 = [b"\xff", b"\x80", b"\xc0\x80", b"\xc3", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]


@pytest.mark.parametrize("name", INVALID_UTF8, ids=bytes.hex)
def test_names_are_utf8(name: bytes, tmp_path: Path) -> None:
    refused(tmp_path, gguf_bytes([key(name, UINT8, b"\x01")]), "metadata key 0: its name '.*' is not UTF-8")
    refused(tmp_path, gguf_bytes(tensors=[Tensor(name)], data=DATA), "tensor 0: its name '.*' is not UTF-8")


@pytest.mark.parametrize("name", ["é", "€", "🦙", "\U0010ffff", "\ud7ff", "\ue000", "\x00", ""])
def test_any_utf8_name_is_taken(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf_bytes([key(name, UINT8, b"\x01")], [Tensor(name)], DATA))
    with GgufFile(path) as file:
        assert file.metadata[name] == 1
        assert file.dequantize(name).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("value_type", "value", "match"),
    [(UINT32, u32(n), f"is {n}, not a power of two") for n in (0, 1, 4, 33, 2**32 - 1)]
    + [(STRING, string("32"), "is not a uint32"), (INT32, u32(32), "is not a uint32")],
)
def test_bad_alignment_is_refused(value_type: int, value: bytes, match: str, tmp_path: Path) -> None:
    refused(
        tmp_path, gguf_bytes([key("general.alignment", value_type, value)]), f"'general.alignment': {match}"
    )


def test_alignment_beyond_the_file_is_refused(tmp_path: Path) -> None:
    keys = [key("general.alignment", UINT32, u32(2**31))]
    refused(tmp_path, gguf_bytes(keys, [Tensor()], DATA), "tensor 't': .* beyond the end of the file")


@pytest.mark.parametrize(
    ("tensor", "match"),
    [
        (Tensor(num_dimensions=5, shape=[1] * 5), "has 5 dimensions"),
        (Tensor(num_dimensions=2**32 - 1), "has 4294967295 dimensions"),
        (Tensor(shape=[0]), "has a dimension of 0"),
        (Tensor(shape=[4, 2**64 - 1]), "has a dimension of -1"),
        (Tensor(shape=[2**32, 2**31]), "has too many values"),
        (Tensor(shape=[2**21] * 3), "has too many values"),
        (Tensor(shape=[2**62]), "has too many values"),
        (Tensor(shape=[2**61]), "beyond the end of the file"),
        (Tensor(shape=[5]), "its 20 bytes at offset 0 reach beyond the end of the file"),
        (Tensor(offset=32), "beyond the end of the file"),
        (Tensor(offset=2**64 - 32), "beyond the end of the file"),
        (Tensor(offset=2**64 - 32, type=99), "beyond the end of the file"),
        (Tensor(offset=4), "its offset 4 is not a multiple of the alignment 32"),
        (Tensor(shape=[16, 2], type=2), "rows of 16 values are no whole number of Q4_0 blocks of 32"),
        (Tensor(shape=[128, 2], type=12), "rows of 128 values are no whole number of Q4_K blocks of 256"),
        (Tensor(shape=[], type=2), "rows of 1 values"),
    ],
)
def test_bad_tensors_are_refused(tensor: Tensor, match: str, tmp_path: Path) -> None:
    refused(tmp_path, gguf_bytes(tensors=[tensor], data=DATA), f"tensor 't': .*{match}")


def test_error_texts_are_short_and_printable(tmp_path: Path) -> None:
    name = "\x1b[31m" + "x" * 60_000
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf_bytes([key(name, 99, b"")]))
    with pytest.raises(GgufError) as caught:
        GgufFile(path)
    text = str(caught.value).removeprefix(str(tmp_path))
    assert len(text) < 300
    assert text.isprintable()
    assert r"\x1b[31mxxx" in text


@settings(max_examples=600, deadline=None)
@given(
    edits=st.lists(
        st.tuples(
            st.integers(0, len(small_file()) - 8),
            st.one_of(
                st.binary(min_size=1, max_size=8),
                st.sampled_from(
                    [u64(n) for n in (0, 1, 2, 255, *HUGE)] + [u32(n) for n in (0, 1, 2**32 - 1)]
                ),
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_bytes_open_or_are_refused(edits: list[tuple[int, bytes]], tmp_path_factory) -> None:
    data = bytearray(small_file())
    for at, replacement in edits:
        data[at : at + len(replacement)] = replacement
    path = tmp_path_factory.getbasetemp() / "fuzzed.gguf"
    path.write_bytes(data)
    with contextlib.suppress(GgufError):
        use(path)
