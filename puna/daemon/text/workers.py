"""Hands jobs to text workers: each has one at a time, and what is short never waits behind what is long."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from puna.chat.errors import PromptError, TemplateError
from puna.daemon.text.model import TextModel
from puna.daemon.worker.restarting_child import SHUTTING_DOWN, ProcessStatus, RestartingChild
from puna.worker.call_client import WorkerDied
from puna.worker.calls import Call, ProtocolError
from puna.worker.text.limits import TOO_SLOW, Limits
from puna.worker.text.messages import Attach, Detach, Ending, cpu_seconds
from puna.worker.text.processes import TextWorker, ZygoteProcess
from puna.worker.text.stages import Stage, limit_error, work_at

log = logging.getLogger(__name__)
T = TypeVar("T")

NUM_READY = 2
"""Workers that are always there."""
MAX_WORKERS = 8
MAX_LONG = 3
"""Workers that may have something long at the same time..."""
MAX_PER_KEY = 6
"""...or something of the same model: the rest is for others."""
_PATIENCE_S = 0.02
"""Where none is free, and one had the same job all that time, another one is forked..."""
_IDLE_S = 30.0
"""...and ends after so long without a job."""
_MAX_FAILURES = 3
"""In a row; then waiting jobs fail: no worker can be started."""
_MAX_ATTACHED = 16
"""Models that one worker knows."""


@dataclass(eq=False, slots=True)
class Job(Generic[T]):
    """A call for any worker."""

    message: Call[T]
    descriptors: Sequence[int]
    """Open as long as the answer is waited for."""
    key: object
    """The model, or the file."""
    model: TextModel | None = None
    """The message for the worker."""
    is_long: bool = False
    answer: asyncio.Future[T] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    was_interrupted: bool = False
    """Once, and not by its own fault."""

    @property
    def counts_as_long(self) -> bool:
        return self.is_long or (self.model is not None and self.model.has_killed)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class TextWorkers:
    """The zygote, and two to eight workers.

    spawn: starts the zygote. limits: of each worker.
    """

    def __init__(self, spawn: Callable[[], Awaitable[ZygoteProcess]], limits: Limits) -> None:
        self._limits = limits
        self._zygote = RestartingChild("text process", spawn, self._prepare)
        self._workers: list[TextWorker] = []
        self._unburied: set[TextWorker] = set()
        """These, and those that have died a moment ago."""
        self._num_forking = 0
        self._num_failures = 0  # to fork, in a row
        self._waiting: list[Job[Any]] = []
        self._running: dict[TextWorker, Job[Any]] = {}
        self._patience: asyncio.TimerHandle | None = None
        self._has_warned = False

    @property
    def processes(self) -> list[ProcessStatus]:
        """The workers: the zygote reads nothing that others wrote."""
        return [ProcessStatus("text", worker.pid, worker.cage) for worker in self._workers]

    def start(self) -> None:
        self._zygote.start()

    async def close(self) -> None:
        for job in [*self._waiting, *self._running.values()]:
            job.fail(WorkerDied(SHUTTING_DOWN))
        self._waiting.clear()
        if self._patience is not None:
            self._patience.cancel()
        await self._zygote.close()
        for worker in self._unburied:
            await worker.client.close()

    async def run(self, job: Job[T]) -> T:
        """Raises what the call raises, WorkerDied, and the error of a limit that the job broke."""
        if self._zygote.is_closing:
            raise WorkerDied(SHUTTING_DOWN)
        self._waiting.append(job)
        self._dispatch()
        try:
            return await job.answer
        finally:
            if job in self._waiting:
                self._waiting.remove(job)

    def detach(self, model: TextModel) -> None:
        """No worker needs to know it any more."""
        for worker in self._workers:
            self._detach(worker, model.number)

    def _detach(self, worker: TextWorker, number: int) -> None:
        if number in worker.attached:
            worker.attached.remove(number)
            with suppress(WorkerDied):
                worker.client.tell(Detach(number))

    def _dispatch(self) -> None:
        """Gives waiting jobs, in their order, to free workers, as far as they may run now."""
        if not self._waiting:
            return
        num_long = sum(job.counts_as_long for job in self._running.values())
        per_key = Counter(job.key for job in self._running.values())
        for job in list(self._waiting):
            if (job.counts_as_long and num_long >= MAX_LONG) or per_key[job.key] >= MAX_PER_KEY:
                continue
            worker = self._free_worker(job)
            if worker is None:
                self._grow()
                return
            self._waiting.remove(job)
            num_long += job.counts_as_long
            per_key[job.key] += 1
            self._running[worker] = job
            worker.num_jobs += 1
            self._zygote.run_in_background(self._work(worker, job))

    def _free_worker(self, job: Job[Any]) -> TextWorker | None:
        """One that knows the model, if there is such a one."""
        free = [worker for worker in self._workers if worker not in self._running]
        number = job.model.number if job.model else 0
        return max(free, key=lambda worker: (number in worker.attached, worker.num_jobs), default=None)

    async def _work(self, worker: TextWorker, job: Job[Any]) -> None:
        try:
            if job.model is not None and not job.answer.done():
                await self._attach(worker, job.model)
            if not job.answer.done():  # else its descriptors may be closed
                answer = await worker.client.call(job.message, job.descriptors)
                if not job.answer.done():
                    job.answer.set_result(answer)
        except WorkerDied:
            await self._bury(worker, job)
        except ProtocolError as error:
            job.fail(PromptError(str(error)))
        except Exception as error:
            job.fail(error)
        finally:
            del self._running[worker]
            if not worker.goes_on:
                self._retire(worker)
            self._drop_later(worker)
            self._dispatch()

    async def _attach(self, worker: TextWorker, model: TextModel) -> None:
        assert not model.is_closed
        if model.number in worker.attached:
            worker.attached.remove(model.number)
        else:
            await worker.client.call(
                Attach(model.number, model.side.template, model.side.fill_in, model.side.rank_template),
                [model.vocabulary],
            )
        worker.attached.append(model.number)
        if len(worker.attached) > _MAX_ATTACHED:
            self._detach(worker, worker.attached[0])

    async def _bury(self, worker: TextWorker, job: Job[Any]) -> None:
        """Its worker has died: of the job, or of something else, and then the job has another try."""
        if worker in self._workers:
            self._workers.remove(worker)
        error = _cause_of_death(await self._reap(worker), job, self._limits)
        if error is not None:
            if job.model is not None and isinstance(error, TemplateError):
                job.model.has_killed = True
            job.fail(error)
        elif job.was_interrupted:
            job.fail(WorkerDied("the text process was killed twice"))
        elif not job.answer.done():
            job.was_interrupted = True
            self._waiting.insert(0, job)

    def _ended(self, worker: TextWorker) -> None:
        """Its channel is closed. If it has a job, that fails, too."""
        if worker not in self._running:
            self._retire(worker)

    def _drop_later(self, worker: TextWorker) -> None:
        asyncio.get_running_loop().call_later(_IDLE_S, self._drop, worker, worker.num_jobs)

    def _drop(self, worker: TextWorker, num_jobs: int) -> None:
        """If it has had no other job since, and is not needed."""
        if worker.num_jobs == num_jobs and len(self._workers) > NUM_READY:
            self._retire(worker)

    def _retire(self, worker: TextWorker) -> None:
        """It gets no more jobs, and is ended if it has not ended."""
        if worker in self._workers and not self._zygote.is_closing:
            self._workers.remove(worker)
            self._zygote.run_in_background(self._forget(worker))

    async def _forget(self, worker: TextWorker) -> None:
        await self._reap(worker)

    async def _reap(self, worker: TextWorker) -> Ending | None:
        """How it ended; None: with its zygote, and so do its siblings."""
        ending = await worker.zygote.reap(worker)
        self._unburied.discard(worker)
        if ending is None:
            for sibling in [other for other in self._workers if other.zygote is worker.zygote]:
                if sibling in self._running:
                    self._workers.remove(sibling)
                else:
                    self._retire(sibling)
        if len(self._workers) + self._num_forking < NUM_READY:
            self._fork_soon()
        return ending

    async def _prepare(self, zygote: ZygoteProcess) -> None:
        try:
            for _ in range(NUM_READY):
                self._add(await zygote.fork(self._limits, self._ended))
        except OSError as error:
            raise WorkerDied(f"text workers cannot be started: {error}") from error
        self._dispatch()

    def _add(self, worker: TextWorker) -> None:
        self._workers.append(worker)
        self._unburied.add(worker)
        self._drop_later(worker)  # it may have come when what it was forked for was done
        if not self._has_warned and (warning := worker.cage.warning):
            self._has_warned = True
            log.warning("a text process is %s", warning)

    def _grow(self) -> None:
        """A job waits, and no worker is free."""
        if not self._workers and not self._num_forking:
            self._fork_soon()
        elif self._patience is None and len(self._workers) + self._num_forking < MAX_WORKERS:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(_PATIENCE_S, self._lose_patience, set(self._running.values()))

    def _lose_patience(self, running_before: set[Job[Any]]) -> None:
        self._patience = None
        if not running_before.isdisjoint(self._running.values()):
            if self._waiting and len(self._running) == len(self._workers):
                self._fork_soon()
        else:
            self._dispatch()

    def _fork_soon(self) -> None:
        self._num_forking += 1
        self._zygote.run_in_background(self._fork(len(self._workers) + self._num_forking))

    async def _fork(self, wanted: int) -> None:
        """Another worker, unless there are `wanted` by the time that one can come."""
        zygote = None
        try:
            zygote = await self._zygote.current()
            if len(self._workers) < wanted:
                self._add(await zygote.fork(self._limits, self._ended))
            self._num_failures = 0
        except (OSError, WorkerDied) as error:
            if zygote is None or isinstance(error, OSError):  # else the next zygote brings workers
                self._fork_failed(error)
        finally:
            self._num_forking -= 1
        self._dispatch()

    def _fork_failed(self, error: Exception) -> None:
        self._num_failures += 1
        if self._workers or self._zygote.is_closing:
            return
        if self._num_failures < _MAX_FAILURES:
            self._fork_soon()
            return
        log.error("no text worker can be started: %s", error)
        for job in self._waiting:
            job.fail(WorkerDied(str(error)))


def _cause_of_death(ending: Ending | None, job: Job[Any], limits: Limits) -> Exception | None:
    """None: not the job, as far as can be known."""
    if ending is None or ending.status in (0, -signal.SIGKILL):
        return None
    stage = Stage.of(ending.stage)
    if ending.status == -TOO_SLOW:
        return limit_error(stage, f"took more than {cpu_seconds(job.message, limits):g} s of processor time")
    cause = f"status {ending.status}" if ending.status > 0 else signal.strsignal(-ending.status)
    if stage is Stage.TOKENIZING:  # the fault is neither the file's nor the client's
        return WorkerDied(f"the text process crashed at {work_at(stage)}: {cause}")
    return limit_error(stage, f"crashed: {cause}")
