"""Pressure is stall time that grows, of the nearest group that tells of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from puna.kv.pressure import MemoryPressure

pytestmark = pytest.mark.unit

MACHINE = Path("proc/pressure/memory")
GROUP = Path("sys/fs/cgroup/user/box/memory.pressure")


class System:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.now_s = 100.0
        for name in ("user", "user/box"):
            (root / "sys/fs/cgroup" / name).mkdir(parents=True)
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/pressure").mkdir()
        (root / "proc/self/cgroup").write_text("0::/user/box\n")

    def stalled(self, path: Path, seconds: float) -> None:
        total = int(seconds * 1e6)
        (self.root / path).write_text(
            f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n"
            f"full avg10=0.00 avg60=0.00 avg300=0.00 total={total * 9}\n"
        )

    def pressure(self) -> MemoryPressure:
        return MemoryPressure(self.root, lambda: self.now_s)


@pytest.mark.parametrize("path", [MACHINE, GROUP])
def test_more_than_a_tenth_of_the_time_is_pressure(tmp_path: Path, path: Path):
    system = System(tmp_path)
    system.stalled(path, 1000)
    pressure = system.pressure()
    assert pressure.is_known
    assert not pressure.is_high(), "what was before does not count"
    for stalled_s, is_high in [(1000.05, False), (1000.25, True), (1000.25, False), (1001, True)]:
        system.now_s += 1
        system.stalled(path, stalled_s)
        assert pressure.is_high() == is_high


def test_the_own_group_comes_before_the_machine(tmp_path: Path):
    system = System(tmp_path)
    system.stalled(GROUP, 1)
    system.stalled(MACHINE, 1)
    pressure = system.pressure()
    assert not pressure.is_high()
    system.now_s += 1
    system.stalled(MACHINE, 2)
    assert not pressure.is_high()


def test_time_between_two_looks_counts_whatever_it_is(tmp_path: Path):
    system = System(tmp_path)
    system.stalled(MACHINE, 1)
    pressure = system.pressure()
    pressure.is_high()
    system.now_s += 100
    system.stalled(MACHINE, 9)
    assert not pressure.is_high()
    assert not pressure.is_high(), "no time has passed"


@pytest.mark.parametrize("text", [None, "", "nonsense", "full avg10=0.00 total=5\n"])
def test_a_system_that_does_not_say_has_none(tmp_path: Path, text: str | None):
    system = System(tmp_path)
    if text is not None:
        (tmp_path / MACHINE).write_text(text)
    pressure = system.pressure()
    assert not pressure.is_known
    assert not pressure.is_high()


def test_a_file_that_vanishes_is_no_pressure(tmp_path: Path):
    system = System(tmp_path)
    system.stalled(GROUP, 1)
    pressure = system.pressure()
    pressure.is_high()
    (tmp_path / GROUP).unlink()
    system.now_s += 1
    assert not pressure.is_high()
