"""llama.cpp's side: a server for each model, started anew where a model is unloaded or all are restarted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from benchmarks.agents.chat import Answer, chat
from benchmarks.agents.conversation import Message
from benchmarks.agents.daemon import NEW_TOKENS
from benchmarks.servers.peer import Peer
from benchmarks.servers.servers import LlamaCpp
from benchmarks.weights.files import BenchFile

_SLOTS, _CONTEXT_TOKENS = 4, 65536


class LlamaCppServers:
    """options: of its caches."""

    def __init__(
        self, files: Mapping[str, BenchFile], peer: Peer, threads: int, options: Sequence[str]
    ) -> None:
        self._files = files
        self._peer = peer
        self._threads = threads
        self._options = options
        self._computed = Counter[str]()
        self._lock = threading.Lock()
        self._stacks = {model: ExitStack() for model in files}
        self._servers: dict[str, LlamaCpp] = {}

    def __enter__(self) -> Self:
        for model in self._files:
            self._start(model)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stack in self._stacks.values():
            stack.close()

    def ask(self, model: str, messages: Sequence[Message], *, thinks: bool) -> Answer:
        name = self._files[model].model
        answer = chat(self._servers[model].url, name, messages, thinks=thinks, max_tokens=NEW_TOKENS)
        with self._lock:
            self._computed[model] += answer.computed_tokens
        return answer

    def unload(self, model: str) -> None:
        self._stacks[model].close()
        self._start(model)

    def restart(self) -> None:
        for model in self._files:
            self.unload(model)

    def computed_tokens(self) -> Counter[str]:
        return self._computed.copy()

    def begin(self, num_new: int) -> None:
        pass

    def end(self) -> bool:
        return False

    def _start(self, model: str) -> None:
        server = self._peer.server(
            self._files[model],
            self._threads,
            _SLOTS,
            "default",
            context_tokens=_CONTEXT_TOKENS,
            options=self._options,
        )
        self._servers[model] = self._stacks[model].enter_context(server)
