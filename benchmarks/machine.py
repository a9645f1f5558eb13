"""What the figures were measured on."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from puna._native import cpu_info


def describe(threads: int) -> str:
    """One sentence, without the machine's name."""
    cpu = cpu_info()
    match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    name = match[1] if match else platform.machine()
    return f"{threads} threads on {name} with {cpu.logical_cpus} CPUs, instruction set {cpu.isa}."
