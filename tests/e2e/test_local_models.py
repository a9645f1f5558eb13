"""A file of Hugging Face's cache is run where it is, by its name and by its path."""

from __future__ import annotations

import os
import signal
import subprocess

import httpx
import pytest

from tests.e2e.launching import PUNA, TIMEOUT_S, address_of, launch

pytestmark = pytest.mark.e2e


def test_a_file_is_run_in_place(tmp_path, smollm2_path):
    snapshot = tmp_path / "hub" / "models--user--SmolLM2-GGUF" / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    path = snapshot / "SmolLM2-135M-Q4_1.gguf"
    path.symlink_to(smollm2_path)
    daemon = launch(tmp_path / "models", HF_HUB_CACHE=str(tmp_path / "hub"))
    try:
        address = address_of(daemon)
        environ = {**os.environ, "OLLAMA_HOST": address, "HOME": str(tmp_path)}
        for model in ("hf.co/user/smollm2-gguf:q4_1", str(path)):
            command = [*PUNA, "run", model, "--format", '{"enum": ["hello"]}', "Say hello."]
            done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.strip() == '"hello"'
        loaded = httpx.get(f"http://{address}/api/ps").json()["models"]
        assert [model["name"] for model in loaded] == ["hf.co/user/SmolLM2-GGUF:Q4_1"]
        stop = subprocess.run(
            [*PUNA, "rm", "hf.co/user/SmolLM2-GGUF:Q4_1"], env=environ, capture_output=True, text=True
        )
        assert "puna only reads" in stop.stderr
        assert not list((tmp_path / "models").rglob("sha256-*"))
    finally:
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(TIMEOUT_S) == 0
    assert smollm2_path.exists()
