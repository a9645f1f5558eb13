"""What tools return and people write, made up: code, listings, logs."""

from __future__ import annotations

import random
from collections.abc import Callable

_VERBS = "load", "parse", "merge", "drop", "check", "render", "count", "send", "split", "store"
_NOUNS = "header", "record", "buffer", "table", "window", "session", "route", "token", "page", "user"


class Writer:
    """A stream of texts; the same for the same seed. count: tokens of a text."""

    def __init__(self, seed: int | str, count: Callable[[str], int]) -> None:
        self._random = random.Random(seed)
        self._count = count

    def text(self, num_tokens: int) -> str:
        """Of about so many tokens."""
        lines: list[str] = []
        while num_tokens > 0:
            lines.append(self._line())
            num_tokens -= self._count(lines[-1] + "\n")
        return "\n".join(lines)

    def path(self) -> str:
        return f"src/{self._noun()}/{self._verb()}_{self._noun()}{self._random.randrange(100)}.py"

    def _line(self) -> str:
        verb, noun, other, number = self._verb(), self._noun(), self._noun(), self._random.randrange(1000)
        return self._random.choice(
            (
                f"def {verb}_{noun}({other}: int = {number}) -> None:",
                f"    {noun} = {verb}_{other}({noun}, limit={number})",
                f"    if {noun} is None and {other}.{verb}ed: raise {noun.title()}Error({number})",
                f"src/{noun}/{other}.py:{number}: {verb} the {noun} before the {other}",
                f"12:{number % 60:02}:07 INFO {noun} {number}: {verb} of {other} done",
                f'{{"{noun}": {number}, "{other}": "{verb}", "is_{verb}ed": true}}',
            )
        )

    def _verb(self) -> str:
        return self._random.choice(_VERBS)

    def _noun(self) -> str:
        return self._random.choice(_NOUNS)
