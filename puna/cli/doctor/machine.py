"""What the machine has, and what the kernel lends to the cages of the daemon's children."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from puna.bench.machine import Machine, describe_machine, measure_roofs
from puna.cli.doctor.findings import Finding, Level
from puna.config.settings import Settings
from puna.config.sizes import binary_size
from puna.worker.cage import landlock
from puna.worker.llamacpp.finding import NoServer, find_server

_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SECCOMP = Path("/proc/sys/kernel/seccomp/actions_avail")
_LITTLE_MEMORY = 1 << 30


def machine_findings(settings: Settings) -> Iterator[Finding]:
    """Takes a second: speeds are measured."""
    machine = describe_machine(settings.num_threads)
    area = "Machine"
    yield Finding(area=area, name="processor", text=machine.cpu)
    yield _kernels(machine)
    yield _threads(machine)
    yield _memory(machine)
    roofs = measure_roofs(machine.num_threads)
    bandwidth, peak = roofs.bytes_per_second / 1e9, roofs.ops_per_second / 1e9
    speed = f"memory {bandwidth:.0f} GB/s, integers {peak:.0f} Gop/s, measured just now"
    yield Finding(area=area, name="speed", text=speed)
    yield _huge_pages()
    yield _second_engine(settings)
    yield from _cage()


def _kernels(machine: Machine) -> Finding:
    if machine.isa != machine.isas[0]:
        text = f"{machine.isa}, though there is {machine.isas[0]}"
        return Finding(area="Machine", name="kernels", text=text, level="warning")
    return Finding(area="Machine", name="kernels", text=machine.isa)


def _threads(machine: Machine) -> Finding:
    text = f"{machine.num_threads} of {machine.num_cpus} processors"
    if machine.num_threads > machine.num_cpus:
        advice = "PUNA_NUM_THREADS: threads that share a processor wait for each other"
        return Finding(area="Machine", name="threads", text=text, level="warning", advice=advice)
    return Finding(area="Machine", name="threads", text=text)


def _memory(machine: Machine) -> Finding:
    text = f"{binary_size(machine.available_bytes)} available of {binary_size(machine.memory_bytes)}"
    if machine.available_bytes < _LITTLE_MEMORY:
        advice = "little is left for models"
        return Finding(area="Machine", name="memory", text=text, level="warning", advice=advice)
    return Finding(area="Machine", name="memory", text=text)


def _second_engine(settings: Settings) -> Finding:
    area, name = "Machine", "second engine"
    if settings.engine == "native":
        return Finding(area=area, name=name, text="switched off (PUNA_ENGINE)")
    try:
        found = find_server(settings.llama_server)
    except NoServer as error:
        is_wanted = settings.engine == "llamacpp" or settings.llama_server is not None
        level: Level = "error" if is_wanted else "ok"
        return Finding(area=area, name=name, text="none", level=level, advice=str(error))
    return Finding(area=area, name=name, text=f"llama.cpp's server: {found.description}")


def _huge_pages() -> Finding:
    try:
        chosen = re.search(r"\[(\w+)\]", _HUGE_PAGES.read_text())
    except OSError:
        chosen = None
    mode = chosen[1] if chosen else "not known"
    if mode == "never":
        advice = f"prompts are read faster with them: echo madvise > {_HUGE_PAGES}"
        return Finding(area="Machine", name="huge pages", text=mode, level="warning", advice=advice)
    return Finding(area="Machine", name="huge pages", text=mode)


def _cage() -> Iterator[Finding]:
    """What holds children that open files of strangers; without it they still run, held less."""
    version = landlock.version()
    advice = "a model's file could make its process read other files; see docs/security.md"
    yield Finding(
        area="Cage",
        name="Landlock",
        text=f"version {version}" if version else "not there, or switched off",
        level="ok" if version else "warning",
        advice="" if version else advice,
    )
    has_seccomp = _SECCOMP.exists()
    yield Finding(
        area="Cage",
        name="seccomp",
        text="there" if has_seccomp else "not there",
        level="ok" if has_seccomp else "warning",
    )
