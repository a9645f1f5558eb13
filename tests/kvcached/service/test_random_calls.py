"""Two thousand random calls of threads and processes, while the limit changes: accounts are exact."""

from __future__ import annotations

import random
import threading

import pytest

from puna.kvcached.service.shared_memory import SharedMemory
from tests.kvcached.service.conftest import MIB, PAGE, eventually

pytestmark = pytest.mark.native

NUM_PROCESSES, NUM_THREADS, NUM_CALLS = 3, 4, 700


@pytest.fixture
def committed(monkeypatch) -> list[int]:
    """A counter of what is committed, at [0], in the order in which it really comes and goes."""
    count, lock, sizes = [0, 0], threading.Lock(), {}
    create, remove = SharedMemory.create, SharedMemory.remove

    def counted_create(self, key, num_bytes, stop):
        with lock:
            count[0] += num_bytes
            count[1] = max(count)
        name = create(self, key, num_bytes, stop)
        sizes[name] = num_bytes
        return name

    def counted_remove(self, name):
        remove(self, name)
        with lock:
            count[0] -= sizes.pop(name)

    monkeypatch.setattr(SharedMemory, "create", counted_create)
    monkeypatch.setattr(SharedMemory, "remove", counted_remove)
    return count


def test_accounts_are_exact_and_the_limit_is_kept(served, committed):
    processes = [served.client_process() for _ in range(NUM_PROCESSES)]
    for seed, process in enumerate(processes):
        process.send("churn", seed=seed, num_calls=NUM_CALLS, num_threads=NUM_THREADS, max_size=64 * PAGE)
    replies, rng = [], random.Random(1)
    receiving = threading.Thread(target=lambda: replies.extend(each.receive() for each in processes))
    receiving.start()
    while receiving.is_alive():
        held = served.run(served.set_limit(rng.randrange(8 * MIB)))
        for _ in range(20):
            before, held = held, max(served.budget.leased, 0)
            assert held <= max(before, served.budget.limit)
        receiving.join(0.01)
    assert all("held" in reply for reply in replies), replies
    errors = [reply["errors"] for reply in replies]
    assert all(each.keys() <= {"RESOURCE_EXHAUSTED", "NOT_FOUND"} for each in errors)
    assert all(sum(each[kind] for each in errors) for kind in ("RESOURCE_EXHAUSTED", "NOT_FOUND"))
    held = [sum(reply["held"].values()) for reply in replies]
    assert committed[0] == served.budget.leased == sum(held) == served.client().stats().allocated > 0
    assert committed[1] <= 8 * MIB
    assert len(served.objects()) == sum(len(reply["held"]) for reply in replies)
    processes[0].kill()
    eventually(lambda: served.budget.leased == sum(held[1:]))
    for process, reply in zip(processes[1:], replies[1:], strict=True):
        for handle, size in reply["held"].items():
            assert process.call("free", handle=int(handle)) == size
    assert committed[0] == served.budget.leased == 0
    assert served.objects() == []
