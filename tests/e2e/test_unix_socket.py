"""A daemon on a Unix socket."""

from __future__ import annotations

import os
import signal
import stat
import subprocess

import pytest

from tests.e2e.launching import PUNA, TIMEOUT_S, address_of, launch

pytestmark = pytest.mark.e2e


def test_the_command_line_speaks_to_a_daemon_on_a_unix_socket(tmp_path):
    path = tmp_path / "puna.sock"
    host = f"unix:{path}"
    process = launch(tmp_path / "models", host=host, PUNA_KV_DISK="0")
    try:
        assert address_of(process) == host
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        environ = {**os.environ, "OLLAMA_HOST": host}
        listed = subprocess.run([*PUNA, "ls"], env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert listed.returncode == 0
        assert listed.stdout.startswith("NAME")
        second = launch(tmp_path / "models", host=host, PUNA_KV_DISK="0")
        _, errors = second.communicate(timeout=TIMEOUT_S)
        assert errors.splitlines()[-1] == f"Error: listen unix {path}: bind: address already in use"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
    assert not path.exists()
