"""What can be wrong with files that are to be converted."""

from __future__ import annotations


class ConversionError(ValueError):
    """The text names the file, the field and what is wrong; it is for clients."""
