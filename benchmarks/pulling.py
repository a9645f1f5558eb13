"""How fast does a model come from a registry on this machine? `python -m benchmarks.pulling [--megabytes
2000]`

The registry is a process of its own, which sends files without touching their bytes, but takes time of the
same cores; once as fast as it goes, once throttled to a gigabit per second. Everything counts from the
request to the model in the store: manifest, ranges, hashing, the disk.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from puna.registry import ModelName, Store
from puna.registry.creation.description import WeightsDescription
from puna.registry.pull import pull
from puna.registry.remote.registry_pull import RegistryAccess
from tests.descriptions import TINY_WEIGHTS
from tests.registry.loopback.contents import Contents
from tests.registry.loopback.server import Registry

GIGABIT = 125e6
ROUNDS = 3


def serve(directory: Path, num_bytes: int, bytes_per_s: float | None, ready: Connection) -> None:
    """Until the other end of `ready` is closed."""
    with Registry(Contents(directory)) as registry:
        registry.behaviour.bytes_per_s = bytes_per_s
        registry.contents.add_model("library/m", model=b"GGUF" + os.urandom(1 << 20) * (num_bytes >> 20))
        ready.send(registry.host)
        ready.poll(None)


async def fetch(store: Store, name: ModelName) -> None:
    async def describe(_: int) -> WeightsDescription:
        return TINY_WEIGHTS

    access = RegistryAccess(store.root / "no-key", insecure=True)
    async for _ in pull(store, name, describe, access):
        pass


def measure(num_bytes: int, bytes_per_s: float | None) -> tuple[float, float]:
    """(bytes per second, seconds of processor time for a gigabyte)."""
    with tempfile.TemporaryDirectory() as directory:
        ours, theirs = multiprocessing.Pipe()
        arguments = (Path(directory) / "registry", num_bytes, bytes_per_s, theirs)
        process = multiprocessing.Process(target=serve, args=arguments, daemon=True)
        process.start()
        try:
            store = Store(Path(directory) / "store")
            name = ModelName.parse(f"{ours.recv()}/library/m")
            start, start_cpu = time.perf_counter(), cpu_s()
            uvloop.run(fetch(store, name))
            elapsed, cpu = time.perf_counter() - start, cpu_s() - start_cpu
            size = store.find(name).size
        finally:
            process.terminate()
            process.join()
    return size / elapsed, cpu / size * 1e9


def cpu_s() -> float:
    """Of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=2000)
    num_bytes = parser.parse_args().megabytes * 1_000_000
    rates = sorted(measure(num_bytes, None) for _ in range(ROUNDS))
    rate, cpu = rates[ROUNDS // 2]
    best = rates[-1][0] / 1e6
    print(f"loopback: {rate / 1e6:.0f} MB/s in the median, {best:.0f} at best, {cpu:.1f} s of a core per GB")
    rate, cpu = measure(num_bytes, GIGABIT)
    print(f"1 Gbit/s: {rate / GIGABIT:.1%} of the link, {cpu:.1f} s of a core per GB")


if __name__ == "__main__":
    main()
