"""Daemons, each with the code of a checkout, and what their processes use. Linux only."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.memory.processes import family
from benchmarks.overhead.footprint import footprint
from benchmarks.servers.servers import free_port

_PATIENCE_S = 60.0
_POLL_S = 0.001
_LOOK_S = 0.1
_CPU_CLOCK = 2
"""As clock_getcpuclockid() builds a process' clock: it counts nanoseconds, where /proc has hundredths."""
_IDLE_CPU_S = 0.001
"""Processes that use less in a look do nothing any more."""


@dataclass(frozen=True)
class Daemon:
    """ready_s: from its start until it answered; ready_cpu_s: processor time of its process until then."""

    pid: int
    port: int
    ready_s: float
    ready_cpu_s: float

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=_PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def processes(self) -> list[int]:
        return family(self.pid)

    def cpu_s(self) -> float:
        """Processor time of all processes so far."""
        return sum(_cpu_ns(pid) for pid in self.processes()) / 1e9

    def settle(self) -> None:
        """Returns when all processes have been idle for a moment."""
        before = self.cpu_s()
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            now = self.cpu_s()
            if now - before < _IDLE_CPU_S:
                return
            before = now
        raise RuntimeError("a daemon without requests does not come to rest")

    def memory_bytes(self) -> int:
        return footprint(self.processes())


@contextmanager
def daemon_of(checkout: Path, store: Path) -> Iterator[Daemon]:
    """Entered once it answers; ended afterwards. It computes on one thread, and has a HOME of its own."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="puna-bench-") as home:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "PYTHONPATH": str(checkout),
            "OLLAMA_MODELS": str(store),
            "OLLAMA_HOST": f"127.0.0.1:{port}",
            "PUNA_NUM_THREADS": "1",
        }
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "puna.cli", "serve"],
            env=env,
            cwd=home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_until_ready(process, port)
            ready_s = time.monotonic() - started
            yield Daemon(process.pid, port, ready_s, _cpu_ns(process.pid) / 1e9)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"a daemon did not start: status {process.poll()}")
        time.sleep(_POLL_S)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return connection.recv(4096).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


def _cpu_ns(pid: int) -> int:
    """Of all threads that it has had; 0 if it has ended."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _CPU_CLOCK)
    except OSError:
        return 0
