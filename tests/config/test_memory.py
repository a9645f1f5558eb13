"""The default KV limit follows what the system and every control group still allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from puna.config.memory import available_bytes, default_kv_limit_bytes, total_bytes

pytestmark = pytest.mark.unit

GIB = 1 << 30


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


MEMINFO = {"proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n"}


def test_without_groups_the_system_decides(tmp_path: Path):
    write(tmp_path, MEMINFO)
    assert available_bytes(tmp_path) == 8 * GIB


def test_the_tightest_group_on_the_way_up_decides(tmp_path: Path):
    write(tmp_path, MEMINFO)
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user/box\n",
            "sys/fs/cgroup/user/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/user/memory.current": f"{3 * GIB}\n",
            "sys/fs/cgroup/user/memory.stat": f"anon 5\ninactive_file 5\nactive_file {GIB - 5}\n",
            "sys/fs/cgroup/user/box/memory.max": "max\n",
            "sys/fs/cgroup/user/box/memory.current": "123\n",
        },
    )
    assert available_bytes(tmp_path) == 2 * GIB


def test_version_1_groups_count_too(tmp_path: Path):
    write(tmp_path, MEMINFO)
    write(
        tmp_path,
        {
            "proc/self/cgroup": "3:cpu:/x\n2:memory:/docker/abc\n",
            # Inside a container the group is mounted at the top, whatever its path outside.
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/memory.stat": "active_file 5\ntotal_active_file 7\ntotal_inactive_file 8\n",
        },
    )
    assert available_bytes(tmp_path) == GIB + 15


def test_an_exhausted_group_leaves_nothing(tmp_path: Path):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "1000",
            "sys/fs/cgroup/memory.current": "2000",
        },
    )
    assert available_bytes(tmp_path) == 0


def test_a_silent_system_gets_a_guess(tmp_path: Path):
    assert available_bytes(tmp_path) > 0


def test_the_default_is_positive_here():
    assert default_kv_limit_bytes() > 0


def test_the_machines_memory_is_what_it_says(tmp_path: Path):
    write(tmp_path, MEMINFO)
    assert total_bytes(tmp_path) == 16 * GIB
    assert total_bytes(tmp_path / "nowhere") == 0
    assert total_bytes() >= available_bytes()
