"""The daemon's side of a child process: starting and ending it."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from puna.worker.calls import Channel, open_channel
from puna.worker.child_log import relay_log
from puna.worker.launch import child_environment, python_command

_LAST_WORDS_S = 1.0


class ChildProcess:
    """A child of this process: it ends when this process does, however that happens."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        self._process = process
        self._log = asyncio.create_task(relay_log(process.stderr), name="child's log")

    @classmethod
    async def spawn(cls, module: str) -> tuple[ChildProcess, Channel]:
        """`python -m module`, and our end of the channel to it. Its log goes to our stderr.

        Raises OSError.
        """
        ours, theirs = open_channel()
        try:
            numbers = theirs.numbers
            arguments = ["--channel", *map(str, numbers), "--parent", str(os.getpid())]
            process = await asyncio.create_subprocess_exec(
                *python_command(module, *arguments),
                # It gets no terminal, neither open nor as its session's own.
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                env=child_environment(),
                pass_fds=numbers,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(process), ours

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """Waits for the end of the process. Its status: negative is a signal's number."""
        return await self._process.wait()

    async def end(self, *, grace_s: float = 0.0) -> None:
        """Kills it unless it ends by itself within grace_s. Does nothing if it has ended."""
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        # What it said last; others that it started may hold its log open for a moment.
        await asyncio.wait([self._log], timeout=_LAST_WORDS_S)
