"""`puna run ./model.gguf` in a folder of downloads runs nothing that lies there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import puna
from tests.e2e.launching import eventually

pytestmark = pytest.mark.e2e

ROOT = Path(puna.__file__).parents[1]
MODULES = (
    *(
        "__future__",
        "typing",
        "collections",
        "pathlib",
        "argparse",
        "asyncio",
        "ctypes",
        "json",
        "logging",
        "queue",
        "random",
        "signal",
        "socket",
        "tempfile",
    ),
    *("httpx", "jinja2", "msgspec", "numpy", "pip", "rich", "typer", "httptools", "yaml"),
)
INSTALLED = [str(ROOT), sysconfig.get_paths()["purelib"]]
SCRIPT = f"import sys\nsys.path += {INSTALLED!r}\nfrom puna.cli.entry import main\nmain()\n"
PLANTED = "import pathlib\npathlib.Path(__file__ + '.ran').touch()\n"


def server_on(address: str) -> int:
    """The process id of the server that was started for this address."""
    for directory in Path("/proc").glob("[0-9]*"):
        command, environ = (directory / "cmdline"), (directory / "environ")
        try:
            if b"serve" in command.read_bytes() and address.encode() in environ.read_bytes():
                return int(directory.name)
        except OSError:
            continue
    raise AssertionError("there is none")


def test_nothing_in_the_current_directory_is_run(smollm2_path, tmp_path):
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    (downloads / "model.gguf").symlink_to(smollm2_path)
    for name in MODULES:
        (downloads / f"{name}.py").write_text(PLANTED)
    script = tmp_path / "puna"  # as pip installs it
    script.write_text(SCRIPT)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    environ = {
        **{"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": f":{ROOT}"},
        **{"OLLAMA_HOST": address, "OLLAMA_MODELS": str(tmp_path / "models"), "PUNA_KV_DISK": "0"},
        "SECRET": "of the shell",
    }
    # -S: an installation for development runs code of its own before any program, wherever that finds it.
    command = [
        sys.executable,
        "-S",
        str(script),
        "run",
        "./model.gguf",
        "--format",
        '{"enum": ["hello"]}',
        "Hi",
    ]
    done = subprocess.run(command, cwd=downloads, env=environ, capture_output=True, text=True, timeout=120)
    server = server_on(address)
    try:
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == '"hello"'
        assert not list(downloads.glob("*.ran"))
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        assert children
        for process in [server, *children]:
            assert b"SECRET" not in Path(f"/proc/{process}/environ").read_bytes()
    finally:
        os.kill(server, signal.SIGTERM)
        eventually(lambda: not Path(f"/proc/{server}").exists())
