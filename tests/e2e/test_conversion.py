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
        env={**os.environ, "OLLAMA_HOST": address, "HOME": str(directory)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_directory_runs_where_it_is_and_gets_an_adapter(address: str, tmp_path: Path):
    tiny, ask = DIRECTORIES["llama"], ("--format", '{"enum": ["the"]}', "the")
    write_directory(tmp_path / "tiny", tiny, random_weights(tiny), num_parts=2)
    write_adapter(tmp_path / "adapter", {"self_attn.q_proj": (192, 96)})
    (tmp_path / "Modelfile").write_text("FROM local/tiny\nADAPTER ./adapter\nPARAMETER num_predict 8\n")
    headers = tmp_path / ".puna" / "in-place" / "headers"
    assert puna(address, tmp_path, "run", "./tiny", *ask).strip() == '"the"'
    assert not list((tmp_path / "models").rglob("sha256-*"))
    (first,) = headers.iterdir()
    assert first.stat().st_size < (tmp_path / "tiny" / "model-00001-of-00002.safetensors").stat().st_size

    puna(address, tmp_path, "create", "tuned", "-f", "Modelfile")
    assert "ADAPTER" in puna(address, tmp_path, "show", "tuned", "--modelfile")
    assert puna(address, tmp_path, "run", "tuned", *ask).strip() == '"the"'

    write_directory(tmp_path / "tiny", tiny, random_weights(tiny, 1), num_parts=2)
    assert puna(address, tmp_path, "run", "local/tiny", *ask).strip() == '"the"'
    assert len(list(headers.iterdir())) == 2  # what is young may be another daemon's
    assert "local/tiny:safetensors" in puna(address, tmp_path, "list", "--local")
    puna(address, tmp_path, "rm", "local/tiny")
    assert "local/tiny" not in puna(address, tmp_path, "list", "--local") + puna(address, tmp_path, "ps")
    assert list(headers.iterdir()) == [first]
    assert (tmp_path / "tiny" / "config.json").exists()
