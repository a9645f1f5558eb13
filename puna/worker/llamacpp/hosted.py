"""The server's process, from its launcher to its end."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from puna.backends.base import ModelLoadError
from puna.worker.call_client import CallClient, WorkerDied
from puna.worker.calls import CallFailed, Channel, open_channel
from puna.worker.launch import child_environment, python_command
from puna.worker.llamacpp.client.connector import Connector
from puna.worker.llamacpp.client.http import ServerClient
from puna.worker.llamacpp.messages import CROSSING, PROGRAM_VARIABLE, Launch, ServerSettings

log = logging.getLogger(__name__)

_MAX_LAST_LINES = 50
_MAX_REASONS = 3
_MAX_LINE_BYTES = 1 << 16
_LINE_HEAD = re.compile(r"^[\d.]+ [A-Z] +")
"""Time and level."""
_ERROR_WORDS = ("error", "failed", "unsupported", "unknown ", "not found", "missing", "invalid")


class HostedServer:
    """Starts as a launcher that waits for a model; becomes the server when that comes."""

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel, connector: Connector) -> None:
        self._process = process
        self._channel = channel
        self._connector = connector
        # Read again and again: once caged, this process opens nothing of the kind.
        self._status = os.open(f"/proc/{process.pid}/status", os.O_RDONLY)
        self._last_lines: deque[str] = deque(maxlen=_MAX_LAST_LINES)
        self._ended: asyncio.Task[None] | None = None

    @classmethod
    def start(cls, settings: ServerSettings) -> HostedServer:
        """The launcher ends with this process, which has no threads yet. Raises OSError."""
        connector = Connector.start(Path(settings.directory))
        ours, theirs = open_channel()
        arguments = ["--channel", *map(str, theirs.numbers), "--parent", str(os.getpid())]
        process = subprocess.Popen(
            python_command("puna.worker.llamacpp.launch", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**child_environment(), PROGRAM_VARIABLE: settings.program},
            cwd=connector.directory,  # its socket's name there is short, whatever the directory's is
            pass_fds=theirs.numbers,
        )
        theirs.close()
        return cls(process, ours, connector)

    async def launch(self, launch_in: Launch, *files: int) -> ServerClient:
        """Returns when the server has loaded the model. Raises ModelLoadError with what it said last."""
        self._ended = asyncio.create_task(self._watch())
        loading = asyncio.create_task(self._load(launch_in, files))
        await asyncio.wait([loading, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            return loading.result()
        loading.cancel()
        raise ModelLoadError(f"llama.cpp's server cannot load it: {self._reason()}")

    async def wait(self) -> None:
        """Until the server has ended, or nobody can connect to it any more."""
        assert self._ended is not None
        await self._ended

    def memory_bytes(self) -> tuple[int, int]:
        """(what is its own: KV and buffers, of files: above all of the model's)."""
        fields = dict(line.split(b":", 1) for line in os.pread(self._status, 8192, 0).splitlines())

        def num_bytes(name: bytes) -> int:
            return int(fields.get(name, b"0 kB").split()[0]) << 10

        return num_bytes(b"RssAnon") + num_bytes(b"RssShmem"), num_bytes(b"RssFile")

    async def _load(self, launch: Launch, files: Sequence[int]) -> ServerClient:
        client = await CallClient.connect(self._channel, crossing=CROSSING)
        try:
            level = await client.call(launch, files)
        except (WorkerDied, CallFailed) as error:
            raise ModelLoadError(f"llama.cpp's server cannot be started: {error}") from error
        finally:
            await client.close()
        if level.warning:
            log.warning("llama.cpp's server is %s", level.warning)
        server = ServerClient(self._connector.connect)
        await server.wait_until_ready()
        return server

    async def _watch(self) -> None:
        ends = [asyncio.create_task(self._read_log()), asyncio.create_task(self._connector.ended())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)

    async def _read_log(self) -> None:
        """Until it is closed, which is when the server ends."""
        assert self._process.stderr is not None
        reader = asyncio.StreamReader(limit=_MAX_LINE_BYTES)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._process.stderr)
        while True:
            try:
                line = await reader.readline()
            except ValueError:  # longer than any
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            self._last_lines.append(text)
            log.debug("%s", text)

    def _reason(self) -> str:
        """Of what it said last, the first lines about an error, if there are any, else the very last."""
        lines = list(dict.fromkeys(_LINE_HEAD.sub("", line) for line in self._last_lines))
        errors = [line for line in lines if any(word in line.lower() for word in _ERROR_WORDS)]
        return "; ".join(errors[:_MAX_REASONS] or lines[-_MAX_REASONS:]) or "it has ended without a word"
