"""One text worker: a fork of the zygote that limits and cages itself before it reads anything untrusted."""

from __future__ import annotations

import logging

from puna.worker import cage
from puna.worker.calls import Asked, CallServer, Channel, close_all
from puna.worker.text.limits import Limits, limit_process, peak_bytes, processor_time
from puna.worker.text.messages import CROSSING, Leaving, ToTextWorker, cpu_seconds
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
    goes_on = True
    while goes_on and (asked := server.read()) is not None:
        stage.begin()
        try:
            goes_on = _answer(server, service, asked, cpu_seconds(asked.message, limits), largest)
        except MemoryError:  # whatever was interrupted may be in any state
            goes_on = False
            server.tell(Leaving())
            server.fail(
                asked.call,
                limit_error(stage.current, f"took more than {limits.memory_bytes >> 20} MiB of memory"),
            )
        finally:
            close_all(asked.descriptors)


def _answer(server: CallServer, service: TextService, asked: Asked, cpu_s: float, largest: int) -> bool:
    """Whether the worker has not grown to the `largest` bytes."""
    error = None
    try:
        with processor_time(cpu_s):
            result = service.handle(asked.message, asked.descriptors)
    except MemoryError:
        raise
    except Exception as raised:  # a file, a template or a prompt must not end the worker
        error = raised
        if not isinstance(error, CROSSING):
            log.exception("a request failed")
    goes_on = peak_bytes() < largest
    if not goes_on:
        server.tell(Leaving())
    if error is not None:
        server.fail(asked.call, error)
    elif asked.call:
        server.answer(asked.call, result)
    return goes_on
