"""The part of a worker that knows sessions: a set of names in memory, and real files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from puna.engine.offload.session_status import SessionStatus, UnknownSession
from puna.kv.checkpoint import CheckpointHeader, KvIdentity, read_header, write_checkpoint
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
    return KvIdentity(model_id=model_id, kv_type=kv_type, num_layers=1, block_bytes=BLOCK_BYTES)


class FakeSessions:
    """pinned: tokens by (model id, session name); 0: no longer pinned."""

    def __init__(self) -> None:
        self.pinned: dict[tuple[str, str], int] = {}
        self.kv_type = "f16"

    async def call(self, message: Any, descriptors: Sequence[int] = ()) -> Any:
        return self.handle_session(message, descriptors)

    def handle_session(self, message: Any, descriptors: Sequence[int]) -> Any:
        match message:
            case ListSessions():
                return self._list()
            case SaveSession(model_id, name):
                return self._save(model_id, name, *descriptors)
            case LoadSession(model_id, name):
                (descriptor,) = descriptors
                header = read_header(os.dup(descriptor), KEY, name)
                header.require(identity(model_id, self.kv_type), name)
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

    def _save(self, model_id: str, name: str, descriptor: int) -> None:
        if (model_id, name) not in self.pinned:
            raise UnknownSession(f"session '{name}' is not in memory")
        num_tokens = self.pinned[model_id, name]
        header = CheckpointHeader(
            kv=identity(model_id, self.kv_type),
            name=name,
            namespace="",
            num_tokens=num_tokens,
            created_at=SAVED_AT,
        )
        blocks = np.zeros((header.num_blocks, BLOCK_BYTES), dtype=np.uint8)
        tokens = np.zeros(num_tokens, dtype=np.int32)
        write_checkpoint(descriptor, KEY, header, tokens, list(blocks))
