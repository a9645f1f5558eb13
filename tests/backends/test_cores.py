"""The default number of threads: physical cores of the affinity mask, within every control group's quota."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from puna.backends.cpu import cores

pytestmark = pytest.mark.unit


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def eight_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """16 logical processors: n and n + 8 share a core. This process may use all."""
    siblings = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    write(tmp_path, {siblings.format(cpu): f"{cpu % 8},{cpu % 8 + 8}\n" for cpu in range(16)})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    return tmp_path


def test_one_thread_for_each_core(eight_cores: Path) -> None:
    assert cores.usable_cores(eight_cores) == 8


@pytest.mark.parametrize(("cpus", "count"), [([0, 8], 1), ([0, 1, 2, 8, 9], 3), ([5], 1)])
def test_only_cores_of_the_affinity_mask(
    eight_cores: Path, monkeypatch: pytest.MonkeyPatch, cpus: list[int], count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cpus))
    assert cores.usable_cores(eight_cores) == count


def test_without_topology_every_processor_is_a_core(tmp_path: Path) -> None:
    assert cores.num_cores([0, 1, 5], tmp_path) == 3


@pytest.mark.parametrize(
    ("quota", "count"),
    [("max 100000", 8), ("250000 100000", 3), ("50000 100000", 1), ("9000000 100000", 8), ("nonsense", 8)],
)
def test_quota_of_version_2(eight_cores: Path, quota: str, count: int) -> None:
    write(eight_cores, {"proc/self/cgroup": "0::/box\n", "sys/fs/cgroup/box/cpu.max": quota + "\n"})
    assert cores.usable_cores(eight_cores) == count


def test_the_tightest_group_on_the_way_up_decides(eight_cores: Path) -> None:
    write(
        eight_cores,
        {
            "proc/self/cgroup": "0::/user/box\n",
            "sys/fs/cgroup/user/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/user/box/cpu.max": "400000 100000\n",
        },
    )
    assert cores.usable_cores(eight_cores) == 2


@pytest.mark.parametrize(("quota", "count"), [("-1", 8), ("150000", 2)])
def test_quota_of_version_1(eight_cores: Path, quota: str, count: int) -> None:
    group = "sys/fs/cgroup/cpu,cpuacct"
    write(
        eight_cores,
        {
            "proc/self/cgroup": "3:memory:/x\n2:cpu,cpuacct:/docker/abc\n",
            f"{group}/cpu.cfs_quota_us": quota + "\n",
            f"{group}/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cores.usable_cores(eight_cores) == count


def test_this_machine_has_a_core() -> None:
    assert 1 <= cores.usable_cores() <= (os.cpu_count() or 1)
