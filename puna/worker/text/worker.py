"""One text worker: a fork of the zygote that limits and cages itself before it reads anything untrusted."""

from __future__ import annotations

import logging

from puna.worker import cage
from puna.worker.calls import Asked, CallServer, Channel, close_all
from puna.worker.text.limits import Limits, limit_process, peak_bytes, processor_time
from puna.worker.text.messages import CROSSING, ToTextWorker, cpu_seconds
from puna.worker.text.service import TextService
from puna.worker.text.stages import SharedStage, limit_error

log = logging.getLogger(__name__)


def run(channel: Channel, stage: SharedStage, limits: Limits) -> None:
    """Serves one daemon, message by message, until that closes the channel or the worker has grown large."""
    limit_process(limits)
    level = cage.enter(cage.CageRules())
    largest = peak_bytes() + limits.kept_bytes
    service = TextService(stage, level)
    server = CallServer(channel, ToTextWorker, CROSSING)
    while peak_bytes() < largest and (asked := server.read()) is not None:
        stage.begin()
        try:
            _answer(server, service, asked, cpu_seconds(asked.message, limits))
        except MemoryError:  # whatever was interrupted may be in any state
            server.fail(
                asked.call,
                limit_error(stage.current, f"took more than {limits.memory_bytes >> 20} MiB of memory"),
            )
            return
        finally:
            close_all(asked.descriptors)


def _answer(server: CallServer, service: TextService, asked: Asked, cpu_s: float) -> None:
    try:
        with processor_time(cpu_s):
            result = service.handle(asked.message, asked.descriptors)
    except MemoryError:
        raise
    except Exception as error:  # a file, a template or a prompt must not end the worker
        if not isinstance(error, tuple(CROSSING)):
            log.exception("a request failed")
        server.fail(asked.call, error)
    else:
        if asked.call:
            server.answer(asked.call, result)
