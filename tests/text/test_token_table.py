"""The blob that says what tokens stand for: read as it was written, and refused where it was not."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna._native import NativeError, TokenTable

pytestmark = pytest.mark.native

PIECES = [b"a", b"", b"\xf0\x9f", b"<|end|>"]
BLOB = TokenTable.build(PIECES, b"\0\0\0\1")


@contextmanager
def memory_file(content: bytes, seals: int) -> Iterator[int]:
    fd = os.memfd_create("table", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    try:
        os.write(fd, content)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        yield fd
    finally:
        os.close(fd)


SEALED = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


@given(st.lists(st.binary(max_size=9), max_size=40))
def test_what_was_built_is_read(pieces: list[bytes]):
    table = TokenTable(TokenTable.build(pieces, bytes(len(pieces))))
    assert len(table) == len(pieces)
    assert [table.token_bytes(token) for token in range(len(pieces))] == pieces


@pytest.mark.parametrize("token", [-1, -(2**60), 4, 2**60])
def test_a_token_beyond_the_table_has_no_bytes(token: int):
    assert TokenTable(BLOB).token_bytes(token) == b""


def test_a_sealed_memory_file_is_mapped_and_outlives_its_descriptor():
    with memory_file(BLOB, SEALED) as fd:
        table = TokenTable.from_descriptor(fd)
    assert [table.token_bytes(token) for token in range(4)] == PIECES


def test_a_file_that_could_change_is_refused():
    for seals in (0, fcntl.F_SEAL_WRITE, fcntl.F_SEAL_SHRINK):
        with memory_file(BLOB, seals) as fd, pytest.raises(NativeError, match="no sealed memory file"):
            TokenTable.from_descriptor(fd)
    with open(__file__, "rb") as file, pytest.raises(NativeError, match="no sealed memory file"):  # noqa: PTH123
        TokenTable.from_descriptor(file.fileno())
    with pytest.raises(NativeError, match="no sealed memory file"):
        TokenTable.from_descriptor(-1)


def test_bytes_out_of_range_are_refused():
    ends = struct.pack("<4I", 1, 0, 3, 10)
    with pytest.raises(NativeError, match="token 1 are out of range"):
        TokenTable(BLOB[:16] + ends + BLOB[32:])
    with pytest.raises(NativeError, match="token 3 are out of range"):
        TokenTable(BLOB[:16] + struct.pack("<4I", 1, 1, 3, 11) + BLOB[32:])


@given(st.integers(0, len(BLOB) - 1), st.integers(0, 255), st.integers(0, len(BLOB)))
def test_harmed_blobs_are_refused_or_read_within_bounds(place: int, byte: int, length: int):
    harmed = bytearray(BLOB)
    harmed[place] = byte
    for blob in (bytes(harmed), BLOB[:length]):
        try:
            table = TokenTable(blob)
        except NativeError:
            continue
        assert sum(len(table.token_bytes(token)) for token in range(len(table))) <= len(blob)


def test_flags_for_another_number_of_tokens_are_refused():
    with pytest.raises(NativeError, match="4 tokens, but 3 flags"):
        TokenTable.build(PIECES, bytes(3))
