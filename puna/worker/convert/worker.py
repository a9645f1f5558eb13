"""One conversion: takes its files, limits and cages itself, and only then reads them."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import closing

from puna._native import ThreadPool
from puna.backends.cpu.cores import usable_cores
from puna.convert.adapter import convert_adapter
from puna.convert.errors import ConversionError
from puna.convert.in_place import make_header
from puna.convert.job import ConvertJob, ConvertProgress
from puna.convert.requantize import requantize
from puna.convert.safetensors import convert_safetensors
from puna.worker.cage import CageRules, enter
from puna.worker.calls import Asked, CallServer, Channel, close_all
from puna.worker.convert.limits import MEMORY_BYTES, limit_process
from puna.worker.convert.messages import CROSSING, MAX_FILES, TakeFiles, ToConverter

log = logging.getLogger(__name__)

_REPORT_INTERVAL_S = 0.1
_CONVERSIONS = {
    "safetensors": convert_safetensors,
    "header": make_header,
    "adapter": convert_adapter,
    "gguf": requantize,
}


def run(channel: Channel) -> None:
    """Serves one daemon until it closes the channel."""
    server = CallServer(channel, ToConverter, CROSSING)
    files: dict[str, int] = {}
    while (asked := server.read()) is not None:
        if isinstance(asked.message, TakeFiles):
            files |= zip(asked.message.names, asked.descriptors, strict=True)
            assert len(files) <= MAX_FILES
            server.answer(asked.call, None)
        else:
            _serve(server, files, asked)


def _serve(server: CallServer, files: dict[str, int], asked: Asked) -> None:
    num_threads = usable_cores()
    limit_process(sum(os.fstat(descriptor).st_size for descriptor in files.values()))
    level = enter(CageRules())
    if level.warning:
        log.warning("the process is %s", level.warning)
    threading.Thread(target=_end_with_channel, args=(server,), daemon=True).start()
    try:
        with closing(ThreadPool(num_threads)) as pool:
            _convert(server, files, asked.descriptors[0], asked.message.job, pool)
    except MemoryError:
        text = f"converting takes more than {MEMORY_BYTES >> 20} MiB of memory"
        server.fail(asked.call, ConversionError(text))
    except Exception as error:
        if not isinstance(error, CROSSING):
            log.exception("a conversion failed")
        server.fail(asked.call, error)
    else:
        server.answer(asked.call, None)
    finally:
        close_all([*files.values(), *asked.descriptors])


def _convert(
    server: CallServer, files: dict[str, int], output: int, job: ConvertJob, pool: ThreadPool
) -> None:
    told_at = 0.0

    def report(progress: ConvertProgress) -> None:
        nonlocal told_at
        now = time.monotonic()
        if now - told_at >= _REPORT_INTERVAL_S or progress.completed == progress.total:
            told_at = now
            server.tell(progress)

    try:
        _CONVERSIONS[job.kind](files, output, job.quantize, report, pool)
        os.fsync(output)
    except OSError as error:
        raise ConversionError(f"converting failed: {error.strerror}") from error


def _end_with_channel(server: CallServer) -> None:
    """Nobody waits for the conversion any more: whatever it is at ends."""
    while server.read() is not None:
        pass
    os._exit(1)
