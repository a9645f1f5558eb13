"""Sessions as others than the engine know them: their names, their state, what cannot be done with them."""

from __future__ import annotations

import re

import msgspec

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class SessionError(RuntimeError):
    """Something that cannot be done with a session now; the text says why."""


class UnknownSession(SessionError):
    """There is no session of that name."""


class InvalidSessionName(ValueError):
    """A name that could not be part of a file's name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f'session name "{name}" is invalid: it must have 1 to 64 letters, digits, ".", "_" or "-", '
            'and start with a letter, a digit or "_"'
        )


def check_session_name(name: str) -> None:
    """Raises InvalidSessionName."""
    if not _NAME.fullmatch(name):
        raise InvalidSessionName(name)


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
