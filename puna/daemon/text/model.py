"""What the daemon keeps of a model's text side."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from puna.worker.text.messages import TextSide

_numbers = itertools.count(1)


@dataclass(eq=False, slots=True)
class TextModel:
    """A model whose prompts can be built, until it is closed."""

    side: TextSide
    vocabulary: int
    token_table: int
    """Descriptors of sealed memory."""
    number: int = field(default_factory=lambda: next(_numbers))
    is_closed: bool = False
    has_killed: bool = False
    """Its template ended a worker: what is asked of it from now on counts as long, and leaves others room."""

    @property
    def end_of_generation(self) -> Sequence[int]:
        """Tokens that end a reply."""
        return self.side.end_of_generation

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            os.close(self.vocabulary)
            os.close(self.token_table)
