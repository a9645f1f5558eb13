"""`puna service`: installs, removes and shows the unit."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from puna.cli.connection import server_environment
from puna.cli.errors import CliError
from puna.cli.service.unit import UnitOptions, unit_text
from puna.interpreter import python_command

UNIT = "puna.service"
_SYSTEM_DIRECTORY = Path("/etc/systemd/system")
_KEPT = ("OLLAMA_", "PUNA_")
"""Settings that the service takes over from the environment in which it is installed."""


def unit_path(*, is_system: bool) -> Path:
    """Where the file is."""
    if is_system:
        return _SYSTEM_DIRECTORY / UNIT
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "systemd" / "user" / UNIT


def text_for(environ: Mapping[str, str], *, is_system: bool) -> str:
    """The unit for this installation of puna, with the settings of `environ`."""
    kept = {name: value for name, value in server_environment(environ).items() if name.startswith(_KEPT)}
    return unit_text(
        UnitOptions(
            command=python_command("puna.cli", "serve"),
            environment=[f"{name}={value}" for name, value in sorted(kept.items())],
            is_system=is_system,
        )
    )


def install(*, is_system: bool) -> None:
    """Writes the unit and starts the service, now and at every boot (every login). Raises CliError."""
    path = unit_path(is_system=is_system)
    _require(is_system=is_system)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_for(os.environ, is_system=is_system))
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from error
    print(f"wrote {path}")
    _systemctl(["daemon-reload"], is_system=is_system)
    _systemctl(["enable", "--now", UNIT], is_system=is_system)
    print("the service is running, and starts by itself from now on")
    if not is_system:
        print("'loginctl enable-linger' lets it run when you are not logged in")


def uninstall(*, is_system: bool) -> None:
    """Ends the service and removes the unit; models stay. Raises CliError."""
    path = unit_path(is_system=is_system)
    if not path.exists():
        raise CliError(f"the service is not installed (there is no {path})")
    _require(is_system=is_system)
    _systemctl(["disable", "--now", UNIT], is_system=is_system)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from error
    _systemctl(["daemon-reload"], is_system=is_system)
    print(f"removed {path}")


def status(*, is_system: bool) -> int:
    """Shows what systemd says; its exit status, 0 if the service is running. Raises CliError."""
    path = unit_path(is_system=is_system)
    if not path.exists():
        raise CliError(f"the service is not installed (there is no {path})")
    _require(is_system=is_system)
    return subprocess.run(
        [*_command(is_system=is_system), "status", "--no-pager", UNIT], check=False
    ).returncode


def _require(*, is_system: bool) -> None:
    if shutil.which("systemctl") is None:
        raise CliError("there is no systemctl here: only systemd's services can be managed")
    if is_system and os.geteuid() != 0:
        raise CliError("a service of the system is managed by root (try sudo)")


def _systemctl(words: Sequence[str], *, is_system: bool) -> None:
    command = [*_command(is_system=is_system), *words]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CliError(f"{command[0]}: {error.strerror}") from error
    if result.returncode:
        said = result.stderr.strip().splitlines()
        raise CliError(f"{' '.join(command)}: {said[-1] if said else f'status {result.returncode}'}")


def _command(*, is_system: bool) -> list[str]:
    return ["systemctl"] if is_system else ["systemctl", "--user"]
