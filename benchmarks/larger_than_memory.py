"""How fast is a model that is larger than memory? `python -m benchmarks.larger_than_memory`

The file with experts runs in a control group that may have half of its bytes, page cache included: in puna,
then in llama.cpp's server with repacking off (a repacked copy of the weights would not fit). Each begins with
nothing of the file in memory. Needs the right to make a control group below this process's own.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.machine import machine_today
from benchmarks.servers.peer import Peer
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import Server, puna_server
from benchmarks.weights.files import BenchFile, bench_file
from benchmarks.workloads import EndedEarly, Workload
from puna.backends.cpu.cores import usable_cores
from puna.config.cgroup import control_groups
from puna.config.sizes import binary_size

WORKLOADS = (Workload("prefill, 512 tokens", 512, 1), Workload("decode, 1 stream", 32, 32))


@contextmanager
def limited(num_bytes: int) -> Iterator[None]:
    """This process and its children in a control group that has no more memory. Raises OSError."""
    group = next(iter((*control_groups("memory", 1), *control_groups("memory", 2))))
    own = Path(tempfile.mkdtemp(prefix="puna-bench-", dir=group))
    try:
        limit = own / "memory.limit_in_bytes"
        (limit if limit.exists() else own / "memory.max").write_text(str(num_bytes))
        (own / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        own.rmdir()


def forget(path: Path) -> None:
    """The system keeps nothing of a file that nobody has mapped."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def rates(server: Server, prompts: Prompts) -> list[float]:
    """Tokens per second of each workload, after a first request that is not counted."""
    server.complete(prompts.take(16), 4)
    return [rate(workload, server, prompts) for workload in WORKLOADS]


def rate(workload: Workload, server: Server, prompts: Prompts) -> float:
    """Of the first prompt whose answer does not end early."""
    while True:
        with suppress(EndedEarly):
            return workload.run(server, [prompts.take(workload.prompt_tokens)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--file", default="Qwen3-30B-A3B")
    parser.add_argument("--part", type=float, default=0.5, help="of the file's bytes (default 0.5)")
    parser.add_argument("--peer", type=Path)
    arguments = parser.parse_args()
    file: BenchFile = bench_file(arguments.file)
    size, threads = file.path.stat().st_size, usable_cores()
    peer, prompts = Peer.find(arguments.peer), Prompts(file.path)
    print(machine_today(threads), f"{file.title}, {binary_size(size)}.", sep="\n")
    with limited(int(size * arguments.part)):
        for title in ("puna", "llama.cpp"):
            forget(file.path)
            is_puna = title == "puna"
            started = (
                puna_server(file, threads) if is_puna else peer.server(file, threads, 1, "repacking off")
            )
            with started as server:
                of_each = zip(WORKLOADS, rates(server, prompts), strict=True)
                print(
                    title, *(f"{w.title}: {rate:.1f} tokens/s" for w, rate in of_each), sep="; ", flush=True
                )


if __name__ == "__main__":
    main()
