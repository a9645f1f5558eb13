"""The examples of docs/kvcached.md compile and run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kvcached.conftest import compile_program, run_program

pytestmark = pytest.mark.native

PAGE = (Path(__file__).parents[2] / "docs" / "kvcached.md").read_text()


def example(language: str, number: int = 0) -> str:
    return str(re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[number])


def test_c(tmp_path: Path):
    source = tmp_path / "main.c"
    source.write_text(example("c"))
    assert run_program(compile_program("cc", [source], tmp_path / "main", [])).stderr == ""


@pytest.mark.parametrize("limit", ["lots", "0", "-1"])
def test_c_says_why_it_cannot_begin(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = tmp_path / "main.c"
    source.write_text(example("c"))
    program = compile_program("cc", [source], tmp_path / "main", [])
    monkeypatch.setenv("OLLAMA_KVCACHED_MEMORY_GB", limit)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f'OLLAMA_KVCACHED_MEMORY_GB is no limit (try 12GiB): "{limit}"\n'


def test_python():
    done = subprocess.run([sys.executable, "-c", example("python")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(2, 341, 16, 8, 64) MemoryStats(limit=268435456, committed=8388608" in done.stdout
