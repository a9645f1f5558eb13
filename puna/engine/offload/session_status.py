"""Sessions as others than the engine know them: their state, what cannot be done with them."""

from __future__ import annotations

import msgspec

NEEDS_PREFIX_TREE = "sessions are found through the prefix tree, which is not in use"


class SessionError(RuntimeError):
    """Something that cannot be done with a session now; the text says why."""


class UnknownSession(SessionError):
    """There is no session of that name."""


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One session in the engine, for lists."""

    model_id: str
    name: str
    num_tokens: int
    kv_bytes: int
    """Of its blocks, also of those that others share; 0 if they are no longer pinned."""

    @property
    def pinned(self) -> bool:
        return self.kv_bytes > 0
