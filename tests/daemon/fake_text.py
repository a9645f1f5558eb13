"""Text workers without processes: what they do is done here, in the test's."""

from __future__ import annotations

from puna.backends.base import ModelSource
from puna.daemon.text.model import TextModel
from puna.daemon.text.pool import TextPool
from puna.daemon.text.workers import Job
from puna.daemon.worker.restarting_child import ProcessStatus
from puna.worker.cage import CageLevel
from puna.worker.text.messages import Attach
from puna.worker.text.service import TextService
from puna.worker.text.stages import SharedStage


class WorkersHere:
    """Has the interface of TextWorkers."""

    def __init__(self) -> None:
        self._service = TextService(SharedStage(), CageLevel(landlock=0, seccomp=False, is_low=False))
        self._attached: set[int] = set()
        self.processes: list[ProcessStatus] = []

    def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def run(self, job: Job):
        if job.model is not None and job.model.number not in self._attached:
            side = job.model.side
            attach = Attach(job.model.number, side.template, side.fill_in, side.rank_template)
            self._service.handle(attach, [job.model.vocabulary])
            self._attached.add(job.model.number)
        return self._service.handle(job.message, job.descriptors)

    def detach(self, model: TextModel) -> None:
        self._attached.discard(model.number)


class FakeTextPool(TextPool):
    """Counts models."""

    def __init__(self) -> None:
        super().__init__()
        self._workers = WorkersHere()
        self.num_open = 0

    async def open_model(self, source: ModelSource) -> TextModel:
        model = await super().open_model(source)
        self.num_open += 1
        return model

    def close_model(self, model: TextModel) -> None:
        self.num_open -= not model.is_closed
        super().close_model(model)
