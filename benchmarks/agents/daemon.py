"""puna's side: one daemon for all models, which is restarted, and whose worker may be killed."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

import httpx

from benchmarks.agents.chat import Answer, chat
from benchmarks.agents.conversation import Message
from benchmarks.memory.daemon import Daemon
from benchmarks.memory.processes import worker_of
from benchmarks.servers.metrics import Metrics
from benchmarks.servers.servers import Puna, puna_server
from benchmarks.weights.files import BenchFile

NEW_TOKENS = 24
_COUNTER = "puna_computed_tokens_total"
_LOOK_S = 0.002


class PunaServers:
    """kills: numbers of the waves in whose midst the worker is to be killed; a wave that is done before it
    comes to that leaves it to the next.
    """

    def __init__(
        self,
        files: Mapping[str, BenchFile],
        threads: int,
        environment: Mapping[str, str],
        kills: Sequence[int] = (),
    ) -> None:
        self._files = files
        self._threads = threads
        self._environment = environment
        self._kills = sorted(kills)
        self._random = random.Random(0)
        self._stack = ExitStack()
        self._counted = Counter[str]()  # by workers that are gone
        self._num_waves = 0
        self._killer: _Killer | None = None

    def __enter__(self) -> Self:
        self._server = self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def ask(self, model: str, messages: Sequence[Message], *, thinks: bool) -> Answer:
        name = self._files[model].model
        return chat(self._server.url, name, messages, thinks=thinks, max_tokens=NEW_TOKENS)

    def unload(self, model: str) -> None:
        Daemon(self._server.url).unload(self._files[model].model)

    def restart(self) -> None:
        self._counted = self.computed_tokens()
        self._stack.close()
        self._server = self._start()

    def computed_tokens(self) -> Counter[str]:
        return self._counted + self._computed()

    def begin(self, num_new: int) -> None:
        self._num_waves += 1
        if self._kills and self._num_waves > self._kills[0]:
            at = self._computed().total() + self._random.uniform(0.05, 0.8) * num_new
            self._killer = _Killer(worker_of(self._server.pid), at, self._computed)

    def end(self) -> bool:
        if self._killer is None:
            return False
        counted, self._killer = self._killer.stop(), None
        if counted is None:
            return False
        self._counted += counted
        self._kills.pop(0)
        return True

    def _computed(self) -> Counter[str]:
        """By the worker that there is now."""
        try:
            metrics = Metrics.of(self._server.url)
        except httpx.HTTPStatusError:  # there is none
            return Counter()
        computed = Counter[str]()
        for model, file in self._files.items():
            with suppress(KeyError):  # it was not loaded yet
                computed[model] = int(metrics.total(_COUNTER, model=file.model, phase="prefill"))
        return computed

    def _start(self) -> Puna:
        file = next(iter(self._files.values()))
        return self._stack.enter_context(puna_server(file, self._threads, self._environment))


class _Killer:
    """Kills the worker once it has computed so many prompt tokens; those of the step that it is in do not
    count: it never ends.
    """

    def __init__(self, worker: int, num_computed: float, computed: Callable[[], Counter[str]]) -> None:
        self._worker = worker
        self._at = num_computed
        self._computed = computed
        self._counted: Counter[str] | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> Counter[str] | None:
        """What the worker had computed; None: it lives."""
        self._stopped.set()
        self._thread.join()
        return self._counted

    def _run(self) -> None:
        while not self._stopped.is_set():
            counted = self._computed()
            if counted.total() >= self._at:
                os.kill(self._worker, signal.SIGKILL)
                self._counted = counted
                return
            time.sleep(_LOOK_S)
