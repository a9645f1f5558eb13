"""A real daemon on a port of its own, with a temporary home, that can be killed and started again."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tests.campaign.clients.http import ask
from tests.campaign.processes import family, session_members

START_S = 30.0
STOP_S = 20.0


class Daemon:
    """prepare: runs in the new process before the program, to set its limits."""

    def __init__(
        self,
        root: Path,
        models: Path,
        variables: Mapping[str, str],
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.root = root
        self.port = _free_port()
        self.log = root / "daemon.log"
        self.temporary = root / "tmp"
        self.generation = 0
        """How often it was killed: what was connected before is cut."""
        self._prepare = prepare
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: list[int] = []
        self.temporary.mkdir(parents=True, exist_ok=True)
        self._environment = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith(("OLLAMA_", "PUNA_"))
            },
            **{"HOME": str(root), "TMPDIR": str(self.temporary), "OLLAMA_MODELS": str(models)},
            **{"OLLAMA_HOST": f"127.0.0.1:{self.port}", "PUNA_NUM_THREADS": "2"},
            **variables,
        }

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def processes(self) -> dict[int, str]:
        """Kinds by process id, its own included."""
        return {self.pid: "daemon", **family(self.pid)}

    def begin(self) -> None:
        """Starts it, without waiting."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "puna.cli", "serve"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=self._prepare,
            )
        self._sessions.append(self._process.pid)

    async def start(self) -> None:
        """Returns when it answers. Raises RuntimeError."""
        self.begin()
        deadline = time.monotonic() + START_S
        while not (await ask(self.port, "GET", "/")).is_whole:
            if not self.is_running or time.monotonic() > deadline:
                raise RuntimeError(f"the daemon does not start:\n{self.log.read_text()[-2000:]}")
            await asyncio.sleep(0.005)

    def kill(self) -> None:
        """Without warning."""
        assert self._process is not None
        self.generation += 1
        self._process.kill()
        self._process.wait()

    async def stop(self) -> int:
        """As service managers do; its status. Raises TimeoutExpired."""
        assert self._process is not None
        self.generation += 1
        self._process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self._process.wait, STOP_S)

    def left_processes(self) -> list[int]:
        """What still runs of all daemons so far."""
        return [pid for session in self._sessions for pid in session_members(session)]

    def end(self) -> None:
        """Kills whatever is left."""
        for pid in self.left_processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def tracebacks(self) -> list[str]:
        """What the log has of unforeseen errors."""
        text = self.log.read_text(errors="replace")
        return [
            text[max(0, found.start() - 300) : found.end() + 3000] for found in re.finditer("Traceback", text)
        ]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
