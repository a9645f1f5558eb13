"""What can be wrong with a Modelfile."""

from __future__ import annotations


class ModelfileError(ValueError):
    """The text says what, and in which line where that is known."""
