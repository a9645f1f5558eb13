"""What a GGUF file can get wrong."""

from __future__ import annotations


class GgufError(ValueError):
    """The text names the file, the field and what is wrong."""
