"""How far something is that takes long."""

from __future__ import annotations

import msgspec


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of Ollama's protocol of pull and create; `total` and `completed` in bytes.

    No `digest` while a wheel is on its way: pip verifies the wheel's hash, but does not tell it.
    """

    status: str
    digest: str | None = None
    total: int | None = None
    completed: int | None = None
