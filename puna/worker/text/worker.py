"""One text worker: a fork of the zygote that limits and cages itself before it reads anything untrusted."""

from __future__ import annotations

import logging

from puna.worker.calls import Asked, CallServer, Channel, close_all
from puna.worker.text import limits
from puna.worker.text.messages import CROSSING, ToTextWorker, cpu_seconds
from puna.worker.text.service import TextService
from puna.worker.text.stages import SharedStage, limit_error

log = logging.getLogger(__name__)

TOO_MUCH_MEMORY = f"took more than {limits.MEMORY_BYTES >> 20} MiB of memory"


def run(channel: Channel, stage: SharedStage) -> None:
    """Serves one daemon, a message at a time, until it closes the channel or the worker has grown too large."""
    limits.limit_process()
    largest = limits.peak_bytes() + limits.KEPT_BYTES
    service = TextService(stage)
    server = CallServer(channel, ToTextWorker, CROSSING)
    while limits.peak_bytes() < largest and (asked := server.read()) is not None:
        stage.begin()
        try:
            _answer(server, service, asked)
        except MemoryError:  # whatever was interrupted may be in any state
            server.fail(asked.call, limit_error(stage.current, TOO_MUCH_MEMORY))
            return
        finally:
            close_all(asked.descriptors)


def _answer(server: CallServer, service: TextService, asked: Asked) -> None:
    try:
        with limits.processor_time(cpu_seconds(asked.message)):
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
