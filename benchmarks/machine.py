"""What is measured on."""

from __future__ import annotations

import os
import sys

from puna.bench.machine import Roofs, describe_machine, measure_roofs

_QUIET_LOAD = 0.5  # llama.cpp's threads spin while they wait: beside other work it slows down tenfold


def machine_today(threads: int, roofs: Roofs | None = None) -> str:
    """The processor, its peaks and its load; names no machine. Warns on stderr if it is busy. roofs: None: to
    be measured.
    """
    machine, load = describe_machine(threads), os.getloadavg()[0]
    roofs = roofs or measure_roofs(threads)
    if load > _QUIET_LOAD:
        print(f"Warning: the load is {load:.1f}; beside other work the ratios mean nothing", file=sys.stderr)
    return (
        f"{machine.cpu}, {machine.num_threads} threads of {machine.num_cpus}, {machine.isa} kernels. "
        f"Measured at the start: integer peak {roofs.ops_per_second / 1e9:.0f} Gop/s, "
        f"memory {roofs.bytes_per_second / 1e9:.1f} GB/s, load {load:.1f}."
    )
