"""Memory belongs to a process, by the kernel's word, and goes when it does, whatever it was about."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess

import pytest

from puna.kvcached.service import clients, shared_memory
from tests.kvcached.service.conftest import MIB, PAGE, eventually

pytestmark = pytest.mark.native


def test_killed_client_leaves_nothing(served):
    survivor, victim = served.client(), served.client_process()
    kept = survivor.allocate(PAGE)
    for _ in range(5):
        victim.call("allocate", size=MIB)
    assert served.budget.leased == 5 * MIB + PAGE
    victim.kill()
    eventually(lambda: served.budget.leased == PAGE)
    assert served.objects() == [kept.shm_name[1:]]
    survivor.free(kept.handle)


def test_client_killed_while_its_memory_is_being_brought(served, monkeypatch):
    real = os.posix_fallocate
    monkeypatch.setattr(shared_memory, "_STEP_BYTES", PAGE)
    victim = served.client_process()

    def fallocate(descriptor: int, start: int, size: int) -> None:
        if start == 4 * PAGE:
            victim.kill()
        real(descriptor, start, size)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    victim.send("allocate", size=64 * MIB)
    eventually(lambda: victim.process.poll() is not None)
    eventually(lambda: served.budget.leased == 0)
    assert served.objects() == []


def test_client_that_ends_before_its_connection(served):
    """Somebody has inherited the connection."""
    client = clients.Client(1)
    served.budget.may_answer.clear()
    allocating = asyncio.run_coroutine_threadsafe(
        served.service.allocations.allocate(client, PAGE, "m"), served.loop
    )
    client.has_ended = True
    served.budget.may_answer.set()
    made = allocating.result(60)
    eventually(lambda: served.budget.leased == 0)
    assert made.shm_name[1:] not in served.objects()


def test_call_given_up_when_it_is_done_leaves_nothing(served):
    async def give_up() -> None:
        allocations = served.service.allocations
        allocating = asyncio.create_task(allocations.allocate(clients.Client(None), PAGE, "m"))
        while not allocations.all():  # noqa: ASYNC110
            await asyncio.sleep(0)
        allocating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await allocating

    served.run(give_up())
    eventually(lambda: not served.service.allocations._work)
    assert served.budget.leased == 0
    assert served.objects() == []


def test_client_killed_while_it_waits_for_the_budget(served):
    victim = served.client_process()
    victim.call("allocate", size=PAGE)
    served.budget.may_answer.clear()
    victim.send("allocate", size=MIB)
    victim.kill()
    eventually(lambda: served.budget.leased == 0)
    served.budget.may_answer.set()
    served.client().allocate(PAGE)
    eventually(lambda: served.budget.leased == PAGE)


def test_reconnecting_client_keeps_what_it_has(served):
    first = served.client()
    made = first.allocate(PAGE)
    first.close()
    eventually(lambda: not served.service.connections)
    second = served.client()
    (listed,) = second.stats(list_allocations=True).allocations
    assert (listed.handle, listed.shm_name) == (made.handle, made.shm_name)
    assert second.free(made.handle) == PAGE


def test_process_that_cannot_be_seen_has_memory_while_it_is_connected(served, monkeypatch):
    monkeypatch.setattr(clients, "_identify", lambda _: (0, None))
    first, second = served.client(), served.client()
    made, kept = first.allocate(PAGE), second.allocate(PAGE)
    assert not second.stats(list_allocations=True).allocations[1:]
    first.close()
    eventually(lambda: served.budget.leased == PAGE)
    assert served.objects() == [kept.shm_name[1:]]
    assert made.handle != kept.handle


def test_stopped_client_is_not_a_dead_one(served):
    client = served.client_process()
    made = client.call("allocate", size=PAGE)
    client.process.send_signal(signal.SIGSTOP)
    served.client().allocate(PAGE)
    client.process.send_signal(signal.SIGCONT)
    assert client.call("free", handle=made["handle"]) == PAGE


@pytest.mark.parametrize("kernel", ["new", "old"])
def test_identity_is_the_kernels(kernel, monkeypatch):
    if kernel == "old":  # without SO_PEERPIDFD
        monkeypatch.setattr(clients, "_SO_PEERPIDFD", 9999)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid, pidfd = clients._identify(ours)
    assert pid == os.getpid()
    assert pidfd is not None
    assert not clients._has_ended(pidfd)
    os.close(pidfd)


def test_number_of_an_ended_process_can_be_anothers(monkeypatch):
    ended: list[clients.Client] = []
    child = subprocess.Popen(["true"])
    its_pidfd = os.pidfd_open(child.pid)
    child.wait()
    identities = iter([(7, its_pidfd), (7, os.pidfd_open(os.getpid())), (7, os.pidfd_open(os.getpid()))])
    monkeypatch.setattr(clients, "_identify", lambda _: next(identities))

    async def main() -> None:
        watched = clients.Clients(ended.append)
        first = watched.connected(None)
        second = watched.connected(None)  # before the loop could tell of the first one's end
        assert ended == [first]
        assert first.has_ended
        assert watched.connected(None) is second
        watched.close()

    asyncio.run(main())
