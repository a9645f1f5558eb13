"""Starts real daemons."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

MODEL = "smollm2:135m"
TIMEOUT_S = 60
PUNA = [sys.executable, "-m", "puna.cli"]

T = TypeVar("T")


def launch(models: Path, *, host: str = "127.0.0.1:0", **variables: str) -> subprocess.Popen[str]:
    """A daemon whose log can be read. Its home is beside its models."""
    home = {"HOME": str(models.parent)}
    ours = {"OLLAMA_HOST": host, "OLLAMA_MODELS": str(models), "PUNA_ENGINE": "native"}
    environ = {**os.environ, **ours, **home, **variables}
    return subprocess.Popen([*PUNA, "serve"], env=environ, stderr=subprocess.PIPE, text=True)


def address_of(process: subprocess.Popen[str]) -> str:
    """Waits until the daemon listens."""
    line = next(line for line in process.stderr if "listening on" in line)
    return re.search(r"listening on (\S+)", line)[1]


def eventually(condition: Callable[[], T]) -> T:
    """Its first true value."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return value


def engine_worker(daemon: int) -> int:
    """The process id of a daemon's engine worker, once it is there."""
    return eventually(lambda: _engine_worker(daemon))


def _engine_worker(daemon: int) -> int | None:
    for child in Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split():
        with suppress(FileNotFoundError):
            if b"puna.worker.engine" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                return int(child)
    return None
