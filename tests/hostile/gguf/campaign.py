"""Runs many hostile cases in a child process, which must survive each within bounds of time and memory."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import product
from pathlib import Path

from puna._native import cpu_info
from puna.backends.cpu import CpuBackend
from puna.config.variables import KV_TYPES
from tests.hostile.gguf.files import base_contents
from tests.hostile.gguf.mutations import mutant
from tests.hostile.gguf.use import use

MAX_CASE_S = 20.0
MAX_GROWTH_BYTES = 512 << 20
"""Of the child's largest memory, in one case. Its arrays are bounded at 128 MiB in the file."""


class Failed(AssertionError):
    """A case crashed, hung, took too much, or raised what it must not; the text says which."""


def run_cases(seed: int, begin: int, end: int, module: str = "tests.hostile.gguf.campaign") -> Counter[str]:
    """What became of the cases [begin, end), by outcome. Raises Failed. module: what runs them."""
    progress = tempfile.TemporaryFile()  # noqa: SIM115
    with progress:
        command = [sys.executable, "-m", module, str(seed), str(begin), str(end)]
        child = subprocess.Popen(
            command, stdout=progress, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        )
        try:
            _, errors = child.communicate(timeout=MAX_CASE_S * 3 + (end - begin))
        except subprocess.TimeoutExpired:
            child.kill()
            _, errors = child.communicate()
            errors += "took too long"
        progress.seek(0)
        outcomes = progress.read().decode().splitlines()
    if child.returncode != 0:
        case = begin + len(outcomes)
        raise Failed(
            f"case {case} of seed {seed} ended with {child.returncode} (again: "
            f"python -m {module} {seed} {case} {case + 1}):\n{errors[-3000:]}"
        )
    return Counter(outcomes)


def _child(seed: int, begin: int, end: int) -> None:
    backends = [CpuBackend(2, isa, kv_type) for isa, kv_type in product(cpu_info().isas, KV_TYPES)]
    with tempfile.TemporaryDirectory() as directory:
        bases = base_contents(Path(directory))
    for case in range(begin, end):
        file = mutant(random.Random(f"{seed}:{case}"), bases)
        start_s, before = time.monotonic(), _peak_bytes()
        outcome = use(file, backends[case % len(backends)])
        taken_s, growth = time.monotonic() - start_s, _peak_bytes() - before
        assert taken_s < MAX_CASE_S, f"took {taken_s:.1f} s"
        assert growth < MAX_GROWTH_BYTES, f"took {growth >> 20} MiB"
        os.write(1, f"{outcome}\n".encode())
    for backend in backends:
        backend.close()


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    _child(*map(int, sys.argv[1:]))
