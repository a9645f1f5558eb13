"""From inside a cage: what is not granted fails, at every level of Landlock, and what is granted works."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import puna
from puna.interpreter import python_command
from puna.worker.cage import CageLevel
from puna.worker.cage.landlock import version

pytestmark = pytest.mark.e2e

ROOT = Path(puna.__file__).parents[1]
REFUSED = re.compile("not permitted|not implemented|denied|not allowed")
LEVELS = [level for level in (0, 1, 2, 4, 7) if level <= version()]


class Outside:
    """What a prisoner could reach, and the files that it may use."""

    def __init__(self, root: Path, opened: ExitStack) -> None:
        self.foreign, self.kept = root / "foreign", root / "kept"
        self.readable = root / "readable"
        self.foreign.mkdir()
        self.kept.mkdir()
        self.secret = self.foreign / "id_rsa"
        for path in (self.secret, self.readable, self.foreign / "victim"):
            path.write_text("content")
        self.server = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.ours, self.theirs = (opened.enter_context(end) for end in socket.socketpair())
        self.unconnected = opened.enter_context(socket.socket())
        self.udp = opened.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        self.terminals = pty.openpty()
        self.pidfd = os.pidfd_open(os.getpid())
        for descriptor in (*self.terminals, self.pidfd):
            opened.callback(os.close, descriptor)

    def imprison(
        self, newest_landlock: int, *, opens_files: bool, is_server: bool = False
    ) -> dict[str, dict[str, Any]]:
        given: dict[str, Any] = {
            "is_server": is_server,
            "newest_landlock": newest_landlock,
            "readable": [str(self.readable), "/nowhere"] if opens_files else [],
            "writable": [str(self.kept)] if opens_files else [],
            "secret": str(self.secret),
            "foreign": str(self.foreign),
            "parent": os.getpid(),
            "terminal": os.ttyname(self.terminals[1]),
            "module": "sqlite3",
            "address": self.server.getsockname(),
            **{"stream": self.theirs.fileno(), "unconnected": self.unconnected.fileno()},
            **{"udp": self.udp.fileno(), "pidfd": self.pidfd, "terminal_fd": self.terminals[1]},
        }
        passed = [given[name] for name in ("stream", "unconnected", "udp", "pidfd", "terminal_fd")]
        self.ours.sendall(b"again")
        done = subprocess.run(
            python_command("tests.worker.cage.prisoner", json.dumps(given)),
            **{"env": {"PYTHONPATH": str(ROOT)}, "pass_fds": passed},
            **{"capture_output": True, "text": True, "timeout": 60},
        )
        assert done.returncode == 0, done.stderr
        result: dict[str, dict[str, Any]] = json.loads(done.stdout)
        return result


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        yield Outside(tmp_path, opened)


@pytest.mark.parametrize("newest_landlock", LEVELS)
@pytest.mark.parametrize("opens_files", [True, False])
def test_nothing_gets_out(outside: Outside, newest_landlock: int, *, opens_files: bool):
    outcomes = outside.imprison(newest_landlock, opens_files=opens_files)
    level = outcomes["level"]
    assert level == {"landlock": newest_landlock, "is_low": opens_files and not newest_landlock}
    assert {name: error for name, error in outcomes["features"].items() if error} == {}
    # Without Landlock, seccomp cannot tell one name from another: who may open files may open all.
    groups = [
        "always_denied",
        "processes",
        "kernel",
        *(["files"] if newest_landlock or not opens_files else []),
    ]
    for group in groups:
        assert {name: error for name, error in outcomes[group].items() if not REFUSED.search(error)} == {}
    if "files" in groups:
        assert outside.secret.read_text() == "content"
        assert sorted(path.name for path in outside.foreign.iterdir()) == ["id_rsa", "victim"]


@pytest.mark.skipif(version() == 0, reason="the kernel has no Landlock")
def test_nothing_gets_out_of_a_server(outside: Outside):
    outcomes = outside.imprison(version(), opens_files=True, is_server=True)
    listens = {"open AF_UNIX", "make a pair of sockets", "listen"}
    for group in ("always_denied", "processes", "kernel", "files"):
        granted = {name for name, error in outcomes[group].items() if not REFUSED.search(error)}
        assert granted == {"always_denied": listens, "kernel": {"memory to execute"}}.get(group, set())
    denied = {name for name, error in outcomes["features"].items() if error}
    assert denied == {"keep", "read"}  # it writes nothing, and reads no other's file


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (CageLevel(7, True, False), "Landlock 7, seccomp"),
        (CageLevel(0, True, True, "switched off"), "seccomp, no Landlock (switched off)"),
        (CageLevel(3, False, True, "denied"), "Landlock 3, no seccomp (denied)"),
        (CageLevel(0, False, True), "no Landlock, no seccomp"),
    ],
)
def test_a_level_is_told(level: CageLevel, text: str):
    assert level.description == text
    assert (level.warning or "").startswith(f"held by {text}: " if level.is_low else "")
