"""The machine: what it is, and the two roofs that speed is held against."""

from __future__ import annotations

import os
import platform
import re
from contextlib import closing
from pathlib import Path

import msgspec

from puna._native import ThreadPool, cpu_info, measure_dot_peak, measure_read_bandwidth
from puna.backends.cpu.cores import usable_cores
from puna.config.memory import available_bytes

_READ_BYTES = 512 << 20
"""Far more than any cache holds."""
_SECONDS = 0.5


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What puna found and chose; never the machine's name."""

    cpu: str
    num_cpus: int
    num_threads: int
    isa: str
    isas: list[str]
    """Instruction sets that there are kernels for, best first."""
    features: list[str]
    memory_bytes: int
    available_bytes: int


class Roofs(msgspec.Struct, frozen=True, kw_only=True):
    """Measured just now, on all threads; other processes lower them as they lower everything else."""

    ops_per_second: float
    """Byte dot products in registers; a multiplication and an addition count as two."""
    bytes_per_second: float
    """Reading memory."""


def describe_machine(num_threads: int | None = None) -> Machine:
    """num_threads: None for as many as a backend would have."""
    cpu = cpu_info()
    return Machine(
        cpu=_cpu_name(),
        num_cpus=cpu.logical_cpus,
        num_threads=num_threads or usable_cores(),
        isa=cpu.isa,
        isas=cpu.isas,
        features=cpu.features,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        available_bytes=available_bytes(),
    )


def measure_roofs(num_threads: int) -> Roofs:
    """Takes about a second. Raises NativeError if there is no memory for it."""
    with closing(ThreadPool(num_threads)) as threads:
        return Roofs(
            ops_per_second=measure_dot_peak(threads, _SECONDS),
            bytes_per_second=measure_read_bandwidth(threads, _READ_BYTES, _SECONDS),
        )


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()
