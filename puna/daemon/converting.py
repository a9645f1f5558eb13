"""Converting model files, each in a caged process of its own."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing

from puna.convert.errors import ConversionError
from puna.convert.job import ConvertJob as ConvertJob
from puna.convert.job import ConvertProgress as ConvertProgress
from puna.worker.call_client import CallClient, WorkerDied
from puna.worker.calls import CallFailed
from puna.worker.convert.limits import TOO_SLOW
from puna.worker.convert.messages import CROSSING, FILES_PER_MESSAGE, MAX_FILES, Convert, TakeFiles
from puna.worker.process import ChildProcess

_LAST_MOMENT_S = 2.0


class Converter:
    """Starts a process for each conversion; between them there is none."""

    async def convert(
        self, files: Mapping[str, int], output: int, job: ConvertJob
    ) -> AsyncGenerator[ConvertProgress, None]:
        """Tells how far it is, at most ten times a second; at the end the output is a whole GGUF file.

        files: descriptors to read, by the files' names in their directory, without it. output: an empty
        regular file that can be written and sought in. Both stay the caller's. Closing the generator ends the
        process; what is written by then is of no use.
        Raises ConversionError, whose text is for clients.
        """
        if len(files) > MAX_FILES:
            raise ConversionError(f"{len(files)} files are more than {MAX_FILES}")
        try:
            process, channel = await ChildProcess.spawn("puna.worker.convert")
        except OSError as error:
            raise ConversionError(f"the process that converts cannot be started: {error}") from error
        told: asyncio.Queue[ConvertProgress | None] = asyncio.Queue()
        try:
            client = await CallClient.connect(
                channel, crossing=CROSSING, events=ConvertProgress, on_event=told.put_nowait
            )
            try:
                async with aclosing(_conversion(client, files, output, job, told)) as steps:
                    async for progress in steps:
                        yield progress
            finally:
                await client.close()
        except WorkerDied as error:
            raise ConversionError(await _cause_of_death(process)) from error
        except CallFailed as error:
            raise ConversionError(f"converting failed: {error}") from error
        finally:
            await process.end()


async def _conversion(
    client: CallClient,
    files: Mapping[str, int],
    output: int,
    job: ConvertJob,
    told: asyncio.Queue[ConvertProgress | None],
) -> AsyncGenerator[ConvertProgress, None]:
    for names in _batches(files):
        await client.call(TakeFiles(names), [files[name] for name in names])
    call = asyncio.create_task(client.call(Convert(job), [output]))
    call.add_done_callback(lambda _: told.put_nowait(None))
    try:
        while (progress := await told.get()) is not None:
            yield progress
        await call
    finally:
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


def _batches(files: Mapping[str, int]) -> Iterator[list[str]]:
    names = iter(files)
    while batch := list(itertools.islice(names, FILES_PER_MESSAGE)):
        yield batch


async def _cause_of_death(process: ChildProcess) -> str:
    try:
        status = await asyncio.wait_for(process.wait(), _LAST_MOMENT_S)
    except TimeoutError:
        return "the process that converts has stopped answering"
    if status == -TOO_SLOW:
        return "converting takes too much processor time"
    cause = f"status {status}" if status >= 0 else signal.strsignal(-status)
    return f"the process that converts has ended: {cause}"
