"""What a model's manifest says of its prompts and replies, beside its file."""

from __future__ import annotations

import msgspec


class ModelTemplates(msgspec.Struct, frozen=True, omit_defaults=True):
    """The same for models whose prompts are made in the same way."""

    go: str = ""
    """Its TEMPLATE, in Go's template language."""
    renderer: str = ""
    parser: str = ""
    """Names of what is built into Ollama."""
    family: str = ""
    """Of models, as the configuration calls it."""
    prefers_go: bool | None = None
    """True, False: whatever the file has; None: the template that offers more."""
