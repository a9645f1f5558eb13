"""`service`: the unit is what systemd understands, and systemctl is asked for the rest."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from puna.cli.service.unit import UnitOptions, unit_text

pytestmark = pytest.mark.unit


@pytest.fixture
def systemctl(monkeypatch, tmp_path):
    """A program that notes how it is called; returns the calls, and the file that makes it fail."""
    calls, failure = tmp_path / "calls", tmp_path / "failure"
    program = tmp_path / "systemctl"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\n[ ! -e {failure} ] || {{ echo no bus >&2; exit 1; }}\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return calls, failure


def test_install_and_uninstall(puna, systemctl, tmp_path, monkeypatch):
    calls, failure = systemctl
    monkeypatch.setenv("OLLAMA_HOST", "0.0.0.0:1")
    monkeypatch.setenv("SECRET", "x")
    unit = tmp_path / ".config/systemd/user/puna.service"
    assert puna("service", "install").status == 0
    text = unit.read_text()
    assert f"ExecStart={sys.executable} -P -m puna.cli serve\n" in text
    assert "Environment=OLLAMA_HOST=0.0.0.0:1\n" in text
    assert "SECRET" not in text
    assert calls.read_text() == "--user daemon-reload\n--user enable --now puna.service\n"
    assert puna("service", "status").status == 0
    failure.touch()
    result = puna("service", "uninstall")
    assert result.err == "Error: systemctl --user disable --now puna.service: no bus\n"
    failure.unlink()
    assert puna("service", "uninstall").out == f"removed {unit}\n"
    assert not unit.exists()
    assert puna("service", "status").err.startswith("Error: the service is not installed")


def test_without_systemd(puna, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert puna("service", "install").err.startswith("Error: there is no systemctl here")


def test_words_are_quoted_as_systemd_reads_them():
    text = unit_text(UnitOptions(["/a b/$python", "50%"], ["OLLAMA_ORIGINS=a b$", "X=\"'"]))
    assert 'ExecStart="/a b/$$python" 50%%\n' in text
    assert 'Environment="OLLAMA_ORIGINS=a b$"\n' in text
    assert 'Environment="X=\\"\'"\n' in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("is_system", [True, False])
def test_systemd_understands_the_unit(tmp_path, is_system):
    unit = tmp_path / "puna.service"
    unit.write_text(unit_text(UnitOptions([sys.executable], ["A=b c"], is_system=is_system)))
    command = ["systemd-analyze", "verify", *([] if is_system else ["--user"]), str(unit)]
    result = subprocess.run(
        command,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")
