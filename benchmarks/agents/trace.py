"""Who asks when, and what happens in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.agents.conversation import Agent

_LARGE, _SMALL = (80, 200, 400, 500, 1500), (50, 100, 150, 250, 400)
MAIN = Agent("main", "hybrid", 2600, _LARGE)
SUBAGENTS = (
    Agent("explorer", "hybrid", 1500, _SMALL),
    Agent("tester", "attention", 1500, _SMALL),
    Agent("reviewer", "hybrid", 2400, _SMALL),
    Agent("documenter", "attention", 1700, _SMALL),
)

_EVEN_TURN = 450
"""Tokens of a result, in turns whose times are compared."""


@dataclass(frozen=True)
class Wave:
    """Requests that are sent at once, one of each agent; then each of the conversations grows by a turn.

    result_tokens: how much a tool gives then, behind a reply of middling length; None: both by chance. timed:
    "" or what its first token is.
    """

    agents: tuple[Agent, ...]
    result_tokens: int | None = None
    timed: str = ""


@dataclass(frozen=True)
class Unload:
    """keep_alive 0; the next request loads the model again."""

    model: str


@dataclass(frozen=True)
class Restart:
    """The daemon ends (SIGTERM) and is started anew."""


Event = Wave | Unload | Restart


def full_trace() -> Iterator[Event]:
    """Five conversations of 56,000 tokens together: the main one of 28,000, four of 6,500 to 7,000."""
    explorer, tester, reviewer, documenter = SUBAGENTS
    for _ in range(5):
        yield Wave((MAIN,))
    yield from _beside_each_other((explorer, tester), 5)
    yield Unload("attention")
    yield from _beside_each_other((explorer, tester), 4)
    for _ in range(3):
        yield Wave((MAIN,))
    yield from _beside_each_other((reviewer, documenter), 4)
    yield from _restart()
    yield from _beside_each_other((reviewer, documenter), 5)
    for _ in range(6):
        yield Wave((MAIN,))
    for returning in (tester, explorer, documenter):  # asked again, long after
        yield Wave((MAIN, returning))
        yield Wave((returning,))


def short_trace() -> Iterator[Event]:
    """Of everything a little."""
    explorer, tester, reviewer, documenter = SUBAGENTS
    yield Wave((MAIN,))
    yield from _beside_each_other((explorer, tester), 2)
    yield Unload("attention")
    yield from _beside_each_other((reviewer, documenter), 2)
    yield from _restart(num_even=1)
    yield Wave((MAIN, tester))
    yield Wave((explorer,))


def _beside_each_other(agents: tuple[Agent, ...], num_turns: int) -> Iterator[Event]:
    """The main conversation goes on meanwhile, now and then."""
    for turn in range(num_turns):
        yield Wave((MAIN, *agents) if turn % 2 else agents)
    yield Wave((MAIN,))


def _restart(num_even: int = 3) -> Iterator[Event]:
    yield Wave((MAIN,), result_tokens=_EVEN_TURN)
    for _ in range(num_even):
        yield Wave((MAIN,), result_tokens=_EVEN_TURN, timed="warm")
    yield Restart()
    yield Wave((MAIN,), result_tokens=_EVEN_TURN, timed="restarted")
    for _ in range(num_even):
        yield Wave((MAIN,), result_tokens=_EVEN_TURN, timed="warm")
