"""Masks are computed in a thread of their own, while the device computes the step."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence as Items
from typing import NamedTuple

from puna._native import TokenMask
from puna.engine.grammars.reply_grammar import GrammarError, ReplyGrammar


class MaskJob(NamedTuple):
    """The masks of one reply in a step."""

    reply: ReplyGrammar
    drafts: Items[int]
    masks: list[TokenMask]
    """For the next token, and for the one behind each draft."""


class Masker:
    """One thread is enough: a mask takes about 20 us, and a step with a hundred streams takes longer than a
    hundred masks. For the engine's thread.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Items[MaskJob] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()  # costs less than an Event
        self._is_busy = False

    def start(self, jobs: Items[MaskJob]) -> None:
        """Nothing else touches these replies until wait() has returned, which comes next."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="masks", daemon=True)
            self._thread.start()
        self._is_busy = True
        self._jobs.put(jobs)

    def wait(self) -> None:
        """Until all that was started is done."""
        if self._is_busy:
            self._done.get()
            self._is_busy = False

    def close(self) -> None:
        """Ends the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (jobs := self._jobs.get()) is not None:
            for job in jobs:
                compute(job)
            del jobs, job  # of replies that may end with this step
            self._done.put(None)


def compute(job: MaskJob) -> None:
    """Whatever goes wrong is told by the masks: a step waits for them."""
    try:
        job.reply.compute(job.drafts, job.masks)
    except GrammarError as error:
        for mask in job.masks:
            mask.fail(str(error))
    except BaseException as error:  # llguidance's panics are no Exception
        for mask in job.masks:
            mask.fail(f"its mask cannot be computed: {error!r}"[:500])
