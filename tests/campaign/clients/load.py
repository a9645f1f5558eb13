"""Clients that keep a daemon busy, and check every answer."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal

from tests.campaign.clients.asks import MODELS, Ask, asks, read_reply, session_ask
from tests.campaign.clients.http import Answer, ask_json
from tests.campaign.clients.http import ask as http_ask
from tests.campaign.daemon import Daemon

BOUND_S = 20.0
"""Any request ends within this time, whatever happens."""

Excuse = Literal["nothing", "errors", "cuts"]
"""What may become of requests beside right answers: nothing, clear errors, or also cut connections."""
_EXCUSES: tuple[Excuse, ...] = ("nothing", "errors", "cuts")

Expected = dict[bytes, str]
"""The texts of replies, by the content of what asks for them."""


async def learn(daemon: Daemon, wanted: list[Ask]) -> Expected:
    """The replies of an undisturbed daemon, one after the other. Raises ValueError for what is no reply."""
    found = {}
    for ask in wanted:
        answer = await http_ask(daemon.port, "POST", ask.path, ask.content)
        reply = read_reply(ask, answer)
        if not reply.is_done:
            raise ValueError(f"{ask}: {answer}")
        found[ask.content] = reply.text
    return found


def fault_of(ask: Ask, answer: Answer, expected: str, excuse: Excuse) -> tuple[str, str]:
    """(what became of a request, what is wrong about that or "")"""
    try:
        reply = read_reply(ask, answer)
    except (ValueError, KeyError, TypeError) as error:
        return "unreadable", f"{error!r}: {answer}"
    if reply.is_done:
        return "done", "" if reply.text == expected else f"another text: {reply.text!r}, not {expected!r}"
    wrong = "" if expected.startswith(reply.text) else f"not the beginning of {expected!r}: {reply.text!r}; "
    if reply.error:
        return "error", wrong + ("" if excuse != "nothing" else f"error {answer.status}: {reply.error}")
    return "cut", wrong + ("" if excuse == "cuts" else f"cut off: {answer.status} {answer.content[-200:]!r}")


class Load:
    """A few clients; what they see is checked against `expected`, and against what faults excuse."""

    def __init__(
        self,
        daemon: Daemon,
        expected: Expected,
        seed: str,
        *,
        pause_s: float = 0.05,
    ) -> None:
        self._daemon = daemon
        self.expected = expected
        self._asks = asks()
        self._random = random.Random(seed)
        self._pause_s = pause_s
        self._tasks: list[asyncio.Task[None]] = []
        self._is_ending = False
        self.excuse: Excuse = "nothing"
        self._faults: list[Excuse] = []
        """What all faults so far excuse."""
        self.outcomes: Counter[str] = Counter()
        self.violations: list[str] = []
        self.saved: dict[tuple[str, str], Ask] = {}
        """Sessions whose saving was confirmed, and the request that continues each."""

    def start(self, num_clients: int) -> None:
        clients = [self._stream, self._stream, self._leave, self._use_sessions, self._err]
        for number in range(num_clients):
            client = clients[number % len(clients)]
            self._tasks.append(asyncio.create_task(self._repeat(client)))

    async def end(self) -> None:
        """Lets the clients finish what they began."""
        self._is_ending = True
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, BaseException):
                self.violations.append(f"a client fails: {ended!r}")

    def fault_begins(self, excuse: Excuse) -> None:
        """It excuses requests that run now, or begin before it is over."""
        self.excuse = excuse
        self._faults.append(excuse)

    def fault_is_over(self) -> None:
        self.excuse = "nothing"

    async def check(self, ask: Ask) -> bool:
        """Whether the reply came as it should; other than by an excuse is a violation."""
        return await self._checked(ask) == "done"

    async def _repeat(self, client: Callable[[], Awaitable[None]]) -> None:
        while not self._is_ending:
            await client()
            await asyncio.sleep(self._random.uniform(0, 2 * self._pause_s))

    async def _stream(self) -> None:
        outcome = await self._checked(self._random.choice(self._asks))
        if outcome != "done":
            await asyncio.sleep(0.1)

    async def _leave(self) -> None:
        ask = self._random.choice(self._asks)
        num_bytes = self._random.choice((0, 1, 1000, 5000))
        await self._bounded(ask.path, ask.content, leave_after=num_bytes)
        self.outcomes["left"] += 1

    async def _err(self) -> None:
        """What makes no sense is refused."""
        model = self._random.choice(MODELS)
        path, body = self._random.choice(
            [
                ("/api/chat", {"model": model, "messages": "none"}),
                ("/v1/chat/completions", {"model": model, "messages": [], "temperature": "hot"}),
                ("/api/generate", {"model": "nobody", "prompt": "hello"}),
                ("/api/generate", {"model": model, "prompt": "x", "options": {"num_predict": "many"}}),
            ]
        )
        began, excuse = len(self._faults), self.excuse
        answer = await self._bounded(path, json.dumps(body).encode())
        if answer.status in (400, 404, 500) and answer.is_whole:
            self.outcomes["refused"] += 1
        elif self._excuse_since(began, excuse) == "nothing":
            self.violations.append(f"a bad request gets {answer}")

    async def _use_sessions(self) -> None:
        model, name = self._random.choice(MODELS), f"s{self._random.randrange(6)}"
        ask = session_ask(model, name)
        if await self._checked(ask) != "done" or self._random.random() < 0.5:
            return
        body = {"model": model, "name": name}
        status, _ = await asyncio.wait_for(
            ask_json(self._daemon.port, "POST", "/api/sessions/save", body), BOUND_S
        )
        if status == 200:
            self.saved[model, name] = ask
            self.outcomes["saved"] += 1

    async def _checked(self, ask: Ask) -> str:
        began, excuse, began_s = len(self._faults), self.excuse, time.monotonic()
        answer = await self._bounded(ask.path, ask.content)
        excuse = self._excuse_since(began, excuse)
        outcome, wrong = fault_of(ask, answer, self.expected[ask.content], excuse)
        self.outcomes[outcome] += 1
        if wrong:
            took_s = time.monotonic() - began_s
            self.violations.append(f"{ask.path} {str(ask.body)[:100]} after {took_s:.2f} s: {wrong[:600]}")
        return outcome

    def _excuse_since(self, num_faults: int, at_first: Excuse) -> Excuse:
        return max(at_first, *self._faults[num_faults:], at_first, key=_EXCUSES.index)

    async def _bounded(self, path: str, content: bytes, leave_after: int | None = None) -> Answer:
        try:
            return await asyncio.wait_for(
                http_ask(self._daemon.port, "POST", path, content, leave_after=leave_after), BOUND_S
            )
        except TimeoutError:
            self.violations.append(f"{path} hangs: {content[:200]!r}")
            return Answer()
