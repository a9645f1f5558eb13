"""Directories of safetensors, models and adapters, become models of a real daemon."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.convert.directories import DIRECTORIES, random_weights, write_directory
from tests.convert.test_adapter import write_adapter
from tests.e2e.launching import PUNA, address_of, launch

pytestmark = pytest.mark.e2e


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "models").mkdir()
    daemon = launch(tmp_path / "models", PUNA_KV_DISK="0")
    try:
        yield address_of(daemon)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.communicate(timeout=30)


def puna(address: str, directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*PUNA, *arguments],
        cwd=directory,
        env={**os.environ, "OLLAMA_HOST": address},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_directory_runs_and_gets_an_adapter(address: str, tmp_path: Path):
    tiny = DIRECTORIES["llama"]
    write_directory(tmp_path / "tiny", tiny, random_weights(tiny), num_parts=2)
    write_adapter(tmp_path / "adapter", {"self_attn.q_proj": (192, 96)})
    (tmp_path / "Modelfile").write_text("FROM local/tiny\nADAPTER ./adapter\nPARAMETER num_predict 8\n")
    answer = puna(address, tmp_path, "run", "./tiny", "--format", '{"enum": ["the"]}', "the")
    assert answer.strip() == '"the"'
    puna(address, tmp_path, "create", "tuned", "-f", "Modelfile")
    listed = puna(address, tmp_path, "show", "tuned", "--modelfile")
    assert "ADAPTER" in listed
    assert "local/tiny" in puna(address, tmp_path, "list")
