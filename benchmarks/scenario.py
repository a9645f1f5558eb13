"""What every scenario gets, and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.figures import Row
from benchmarks.servers.peer import Peer


@dataclass(frozen=True)
class Setup:
    """quick: a fraction of the work, which shows that all of it runs; its figures mean little."""

    peer: Peer
    threads: int
    quick: bool


class Finding(NamedTuple):
    """A row of the table with this title."""

    title: str
    row: Row


Findings = Iterator[Finding]
Scenario = Callable[[Setup], Findings]
