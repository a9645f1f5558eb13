"""A caged engine worker sees of the machine and its control groups what it saw before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

LOOKS_TWICE = """
import json, os, sys
from pathlib import Path
from puna.backends.cpu.cores import usable_cores
from puna.config.cgroup import control_groups
from puna.config import memory
from puna.kv.pressure import MemoryPressure
from puna.kv.files.state_directory import StateDirectory
from puna.worker.cage import enter
from puna.worker.cage.engine_rules import engine_rules

def look():
    kinds = [(name, version) for name in ("memory", "cpu") for version in (1, 2)]
    groups = [group for kind in kinds for group in control_groups(*kind)]
    limits = [len(list(memory._left(group, *names))) for group in groups for names in (
        ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))]
    return [usable_cores(), memory.total_bytes(), MemoryPressure().is_known, list(map(str, groups)), limits]

before = look()
enter(engine_rules(Path(sys.argv[1])))
model = StateDirectory.open(Path(sys.argv[1])).subdirectory("model", make=True)
descriptor, temporary = model.create_temporary()
os.write(descriptor, b"kept")
model.replace(temporary, "kept")
model.set_modified("kept", 10**18)
print(json.dumps([before, look()]))
"""


def test_limits_are_seen_from_inside(tmp_path: Path):
    kv_dir = tmp_path / "cache" / "kv"
    done = subprocess.run(
        [sys.executable, "-c", LOOKS_TWICE, str(kv_dir)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    before, inside = json.loads(done.stdout)
    assert inside == before
    assert inside[1] > 0
    assert kv_dir.stat().st_mode & 0o777 == 0o700
    assert (kv_dir / "model" / "kept").read_text() == "kept"
    assert (kv_dir / "model" / "kept").stat().st_mtime == 1e9
