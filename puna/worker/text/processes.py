"""The daemon's side of the zygote and of the workers that it forks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from puna.worker.cage import CageLevel
from puna.worker.call_client import CallClient, WorkerDied
from puna.worker.calls import open_channel
from puna.worker.process import ChildProcess
from puna.worker.text.limits import Limits
from puna.worker.text.messages import CROSSING, Ending, Fork, GetCage, Leaving, Reap

_GRACE_S = 1.0


class TextWorker:
    """A process that does one thing at a time."""

    def __init__(self, zygote: ZygoteProcess, pid: int, client: CallClient) -> None:
        self.zygote = zygote
        self.pid = pid
        self.client = client
        self.cage = CageLevel(landlock=0, seccomp=False, is_low=True)  # until it says otherwise
        self.attached: list[int] = []
        """Models that it knows, by number, the least recently used first."""
        self.num_jobs = 0
        """So far, with the one that it is at."""
        self._is_leaving = False

    @property
    def goes_on(self) -> bool:
        """It takes another job."""
        return self.client.is_alive and not self._is_leaving

    def leave(self) -> None:
        self._is_leaving = True


class ZygoteProcess:
    """The zygote, as a child of this process."""

    def __init__(self, process: ChildProcess, client: CallClient) -> None:
        self._process = process
        self._client = client

    @classmethod
    async def start(cls) -> ZygoteProcess:
        """Raises OSError."""
        process, channel = await ChildProcess.spawn("puna.worker.text")
        return cls(process, await CallClient.connect(channel, crossing=()))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def fork(self, limits: Limits, on_end: Callable[[TextWorker], None]) -> TextWorker:
        """A worker, caged. on_end: called once when it has closed its channel.

        Raises OSError, and WorkerDied when the zygote itself is dead.
        """
        ours, theirs = open_channel()
        try:
            pid = await self._client.call(Fork(limits), theirs.numbers)
        except BaseException:  # a worker that is forked all the same finds its channel closed
            ours.close()
            raise
        finally:
            theirs.close()
        client = await CallClient.connect(
            ours,
            crossing=CROSSING,
            events=Leaving,
            on_event=lambda _: worker.leave(),
            on_end=lambda: on_end(worker),
        )
        worker = TextWorker(self, pid, client)
        try:
            worker.cage = await client.call(GetCage())
        except WorkerDied as error:
            ending = await self.reap(worker)
            if ending is None:
                raise
            raise OSError(f"one ended at its start, with status {ending.status}") from error
        except BaseException:
            await client.close()
            raise
        return worker

    async def reap(self, worker: TextWorker) -> Ending | None:
        """How it has ended, or that it was ended now; None: its zygote died, too."""
        await worker.client.close()
        with suppress(WorkerDied):
            return await self._client.call(Reap(worker.pid))
        return None

    async def wait(self) -> int:
        """Waits for the end of the process. Its status: negative is a signal's number."""
        return await self._process.wait()

    async def terminate(self) -> None:
        """Ends the zygote, and with it its workers. Does nothing if it has ended."""
        await self._client.close()
        await self._process.end(grace_s=_GRACE_S)
