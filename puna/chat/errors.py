"""What can go wrong between messages and tokens."""

from __future__ import annotations

_MAX_CHARS = 1000


class PromptError(ValueError):
    """A mistake of whoever asked; the text names it."""


class TemplateError(ValueError):
    """The text names the line of the template if it is known, and what is wrong."""

    def __init__(self, text: str) -> None:
        """Cut if it is long: a template may raise a whole conversation."""
        super().__init__(text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 3] + "...")
