"""What a client of the service gets: memory, or an error that says why not, while others go on."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from puna.engine.observation.stats import ModelStats
from puna.kvcached.service import allocations, shared_memory
from tests.kvcached.service.client_process import mapped
from tests.kvcached.service.conftest import MIB, PAGE, eventually

pytestmark = pytest.mark.native


@contextmanager
def refused(code: str, *texts: str) -> Iterator[None]:
    with pytest.raises(grpc.RpcError) as caught:
        yield
    error: Any = caught.value
    assert error.code() is grpc.StatusCode[code], error
    for text in texts:
        assert text in error.details()


def test_memory_is_shared_zeroed_and_in_whole_pages(served):
    client, other = served.client(), served.client_process()
    made = client.allocate(PAGE + 1)
    assert made.size == 2 * PAGE
    assert made.gpu_ptr == 0
    assert made.handle != 0
    with mapped(made.shm_name) as memory:
        assert memory[:] == bytes(2 * PAGE)
        other.call("write", shm_name=made.shm_name, text="from another process")
        assert memory[:20] == b"from another process"
    assert served.budget.leased == 2 * PAGE


def test_memory_is_committed_before_it_is_touched(served):
    made = served.client().allocate(3 * MIB)
    status = Path(f"/dev/shm{made.shm_name}").stat()
    assert status.st_size == status.st_blocks * 512 == 3 * MIB
    assert status.st_mode & 0o777 == 0o600


def test_freed_memory_is_gone_even_if_it_is_mapped(served):
    client = served.client()
    made = client.allocate(MIB)
    with mapped(made.shm_name) as memory:
        descriptor = os.open(f"/dev/shm{made.shm_name}", os.O_RDONLY)
        assert client.free(made.handle) == MIB
        assert os.fstat(descriptor).st_blocks == 0
        os.close(descriptor)
        del memory
    assert served.objects() == []
    assert served.budget.leased == 0


def test_free_of_what_is_free_or_never_was(served):
    client = served.client()
    made = client.allocate(PAGE)
    client.free(made.handle)
    for handle in (made.handle, 0, -1, 12345, (1 << 63) - 1):
        with refused("NOT_FOUND", str(handle)):
            client.free(handle)
    assert served.budget.leased == 0


def test_free_of_another_clients(served):
    client, other = served.client(), served.client_process()
    made = client.allocate(PAGE)
    reply = other.call("free", handle=made.handle)
    assert reply["error"] == "PERMISSION_DENIED"
    assert f"process {other.process.pid}" in reply["text"]
    client.free(made.handle)


@pytest.mark.parametrize("size", [0, -1, -(1 << 63)])
def test_sizes_that_make_no_sense(served, size):
    with refused("INVALID_ARGUMENT", str(size)):
        served.client().allocate(size)


def test_model_id_that_is_too_long(served):
    client = served.client()
    client.allocate(PAGE, "é" * 128)
    with refused("INVALID_ARGUMENT", "at most 256 bytes, not 257"):
        client.allocate(PAGE, "é" * 128 + "e")


def test_limit_says_what_is_needed_available_and_who_holds_the_rest(served):
    client = served.client()
    served.budget.models = [ModelStats("sha256:1", 1, 0, 0, 64, 4096, 0, 8192)]
    client.allocate(60 * MIB)
    pid = os.getpid()
    expected = "5 MiB are needed, 4 MiB are available; in use: "
    with refused("RESOURCE_EXHAUSTED", f"{expected}llama3.2 4 KiB, process {pid} 60 MiB"):
        client.allocate(5 * MIB)
    served.budget.models = [
        ModelStats("sha256:2", 1, 0, 0, 64, 0, 0, 0, guaranteed_kv_bytes=5, weight_bytes=7)
    ]
    served.budget.memory_limit = 64 * MIB
    with refused("RESOURCE_EXHAUSTED", f"{expected}sha256:2 5 B, weights 7 B, process {pid} 60 MiB"):
        client.allocate(5 * MIB)
    client.allocate(4 * MIB)
    with refused("RESOURCE_EXHAUSTED"):
        client.allocate((1 << 63) - 1)
    assert len(served.objects()) == 2


def test_full_shared_memory(served):
    served.budget.limit = 1 << 60
    space = os.statvfs("/dev/shm")
    client = served.client()
    with refused("RESOURCE_EXHAUSTED", "are needed"):
        client.allocate(space.f_blocks * space.f_frsize + PAGE)
    assert served.budget.leased == 0
    client.allocate(PAGE)


def test_shared_memory_that_fills_up_meanwhile(served, monkeypatch):
    real = os.posix_fallocate
    monkeypatch.setattr(shared_memory, "_STEP_BYTES", MIB)

    def fallocate(descriptor: int, start: int, size: int) -> None:
        if start == 2 * MIB:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor, start, size)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    with refused("RESOURCE_EXHAUSTED", "/dev/shm is full"):
        served.client().allocate(4 * MIB)
    assert served.budget.leased == 0
    assert served.objects() == []


def test_system_without_memory(served, monkeypatch):
    monkeypatch.setattr(allocations, "available_bytes", lambda: MIB)
    client = served.client()
    with refused("RESOURCE_EXHAUSTED", "the system has 1 MiB available"):
        client.allocate(MIB + 1)
    assert served.budget.leased == 0
    client.allocate(MIB)


def test_object_that_cannot_be_removed_still_counts(served, monkeypatch):
    client = served.client()
    made, other = client.allocate(PAGE), client.allocate(PAGE)

    def fail(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "truncate", fail)
        client.free(made.handle)
    assert served.budget.leased == 2 * PAGE
    client.free(other.handle)
    assert served.budget.leased == PAGE


def test_dead_worker(served):
    client = served.client()
    made = client.allocate(PAGE)
    served.budget.is_dead = True
    with refused("UNAVAILABLE", "unexpectedly stopped"):
        client.allocate(PAGE)
    with refused("UNAVAILABLE"):
        client.stats()
    served.budget.is_dead = False
    client.free(made.handle)


def test_available_is_what_everybody_allows(served, monkeypatch):
    client = served.client()
    monkeypatch.setattr(allocations, "available_bytes", lambda: 5 * PAGE)
    assert client.stats().available == 5 * PAGE
    monkeypatch.setattr(shared_memory.SharedMemory, "free_bytes", lambda _: 3 * PAGE)
    assert client.stats().available == 3 * PAGE
    served.budget.limit = 2 * PAGE
    assert client.stats().available == 2 * PAGE
    client.allocate(2 * PAGE)
    served.budget.limit = PAGE
    assert client.stats().available == 0


def test_stats(served):
    client, other = served.client(), served.client_process()
    served.budget.models = [ModelStats("sha256:1", 1, 0, 0, 64, 4096, 0, 8192)]
    first, second = client.allocate(PAGE, "b"), client.allocate(2 * PAGE, "a")
    other.call("allocate", size=PAGE, model_id="a")
    stats = client.stats(list_allocations=True)
    assert (stats.limit, stats.allocated, stats.available) == (64 * MIB, 4 * PAGE, 64 * MIB - 4 * PAGE)
    assert stats.committed == 4 * PAGE + 8192
    assert [(m.model_id, m.size, m.num_allocations) for m in stats.models] == [
        ("a", 3 * PAGE, 2),
        ("b", PAGE, 1),
    ]
    assert [(a.handle, a.model_id, a.shm_name, a.size) for a in stats.allocations] == [
        (first.handle, "b", first.shm_name, PAGE),
        (second.handle, "a", second.shm_name, 2 * PAGE),
    ]
    assert not client.stats().allocations


def test_reply_larger_than_the_clients_window(served):
    client = served.client()
    made = [client.allocate(PAGE, "m" * 256) for _ in range(400)]
    listed = client.stats(list_allocations=True).allocations
    assert [each.handle for each in listed] == [each.handle for each in made]


def unary(client, path: str, message: bytes, **options: Any) -> bytes:
    return client.channel.unary_unary(path)(message, timeout=60, **options)


def test_calls_that_make_no_sense(served):
    client = served.client()
    with refused("UNIMPLEMENTED", "/KVCached/Burn"):
        unary(client, "/KVCached/Burn", b"")
    with refused("INVALID_ARGUMENT", "AllocRequest"):
        unary(client, "/KVCached/Allocate", b"\xff\xff\xff")
    with refused("RESOURCE_EXHAUSTED", "65536"):
        unary(client, "/KVCached/Allocate", bytes(300_000))
    with refused("UNIMPLEMENTED", "compressed"):
        unary(client, "/KVCached/Allocate", b"\x0a" * 4000, compression=grpc.Compression.Gzip)
    client.allocate(PAGE)


@pytest.mark.parametrize(
    "bytes_sent", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)]
)
def test_client_that_speaks_something_else_is_cut_off(served, bytes_sent):
    client = served.client()
    made = client.allocate(PAGE)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(served.path))
        stranger.settimeout(60)
        stranger.sendall(bytes_sent)
        while stranger.recv(4096):
            pass
    client.free(made.handle)


def test_failure_of_the_service_itself_is_told_and_leaves_nothing(served, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(shared_memory, "_commit", fail)
    with refused("INTERNAL"):
        served.client().allocate(PAGE)
    assert served.budget.leased == 0
    assert served.objects() == []


def test_call_that_is_given_up_leaves_nothing(served):
    client = served.client()
    client.stats()
    served.budget.may_answer.clear()
    with refused("DEADLINE_EXCEEDED"):
        client.allocate(PAGE, timeout=0.2)
    with refused("NOT_FOUND"):  # so that the service knows by now
        client.free(0)
    served.budget.may_answer.set()
    eventually(lambda: not served.service.allocations._work)
    assert served.budget.leased == 0
    assert served.objects() == []


def test_end_of_the_service_leaves_clients_their_memory(served):
    client = served.client()
    made = client.allocate(PAGE)
    with mapped(made.shm_name) as memory:
        served.run(served.service.close())
        with refused("UNAVAILABLE"):
            client.stats()
        memory[0] = 1
