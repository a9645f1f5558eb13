"""The part of a worker that knows sessions: a set of names in memory, and real files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from puna.backends.base import KvGroup
from puna.engine.offload.session_status import SessionStatus, UnknownSession
from puna.kv.files.identity import KvIdentity
from puna.kv.files.saved_sessions import SavedSessions
from puna.kv.files.session_manifest import SessionHeader
from puna.worker.engine.messages import ListSessions, LoadSession, RemoveSession, SaveSession

BLOCK_BYTES = 64
KEY = bytes(range(32))
SAVED_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def write_key(path: Path) -> Path:
    """That of saved sessions."""
    path.touch(mode=0o600)
    path.write_bytes(KEY)
    return path


def identity(model_id: str, kv_type: str = "f16") -> KvIdentity:
    groups = (KvGroup(num_layers=1, block_bytes=BLOCK_BYTES),)
    return KvIdentity(model_id=model_id, kv_type=kv_type, groups=groups)


class FakeSessions:
    """pinned: tokens by (model id, session name); 0: no longer pinned."""

    def __init__(self, directory: Path) -> None:
        self.pinned: dict[tuple[str, str], int] = {}
        self.kv_type = "f16"
        self._saved = SavedSessions(directory, lambda: KEY)

    async def call(self, message: Any) -> Any:
        return self.handle_session(message)

    def handle_session(self, message: Any) -> Any:
        match message:
            case ListSessions():
                return self._list()
            case SaveSession(model_id, name):
                return self._save(model_id, name)
            case LoadSession(model_id, name):
                header = self._saved.open(model_id, name).header
                header.require(identity(model_id, self.kv_type))
                self.pinned[model_id, name] = header.num_tokens
            case RemoveSession(model_id, name):
                return self.pinned.pop((model_id, name), None) is not None
        return None

    def _list(self) -> list[SessionStatus]:
        return [
            SessionStatus(
                model_id=model_id,
                name=name,
                num_tokens=num_tokens,
                kv_bytes=-(-num_tokens // 16) * BLOCK_BYTES,
            )
            for (model_id, name), num_tokens in self.pinned.items()
        ]

    def _save(self, model_id: str, name: str) -> None:
        if (model_id, name) not in self.pinned:
            raise UnknownSession(f"session '{name}' is not in memory")
        num_tokens = self.pinned[model_id, name]
        header = SessionHeader(
            kv=identity(model_id, self.kv_type),
            kernels="",
            name=name,
            namespace="",
            num_tokens=num_tokens,
            created_at=SAVED_AT,
        )
        block = np.zeros(BLOCK_BYTES, dtype=np.uint8)
        self._saved.write(header, bytes(4 * num_tokens), lambda *_: block, lambda: None)
