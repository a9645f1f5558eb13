"""Sessions: the KV of finished requests, kept under a name for whoever continues them.

A session pins blocks that the prefix cache can find, so that a request which begins with the session's tokens
uses them like any other cached prefix.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from puna.backends.base import BlockMemory
from puna.config.sizes import binary_size
from puna.engine.offload.session_files import HeldBlocks, SessionLoad, SessionSave, Transfer
from puna.engine.offload.session_status import SessionError, SessionStatus, UnknownSession
from puna.kv import BlockPool, PrefixCache, SequenceTable
from puna.kv.checkpoint import Checkpoint, CheckpointHeader, KvIdentity

_MAX_UNPINNED = 1000
_NO_TOKENS: NDArray[np.int32] = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class ModelKv:
    """The KV memory of a model."""

    identity: KvIdentity
    memory: BlockMemory
    pool: BlockPool
    cache: PrefixCache


@dataclass(slots=True)
class _Session:
    """num_tokens: whose KV was pinned; the table is empty, and the tokens gone, if it no longer is."""

    num_tokens: int
    namespace: str
    to_disk: bool
    tokens: NDArray[np.int32]
    table: SequenceTable

    @property
    def is_pinned(self) -> bool:
        return self.table.num_blocks > 0


class Sessions:
    """The sessions of all models. For the engine's thread, except for the run() of what begin_... return."""

    def __init__(self) -> None:
        self._models: dict[str, ModelKv] = {}
        # By model and name, least recently used first.
        self._sessions: dict[tuple[str, str], _Session] = {}
        self._transfers: list[Transfer] = []

    @property
    def pinned_bytes(self) -> int:
        """Of all that unpin_oldest() can release; shared blocks count with each who shares them."""
        return sum(
            table.num_blocks * model.pool.block_bytes
            for model_id, model in self._models.items()
            for table in self.tables(model_id)
        )

    def add_model(self, model_id: str, kv: ModelKv) -> None:
        self._models[model_id] = kv

    def refit_model(self, model_id: str, kv: ModelKv) -> None:
        """Its KV is kept elsewhere from now on; nothing is pinned."""
        self._models[model_id] = kv

    def remove_model(self, model_id: str) -> None:
        """Forgets the model's sessions; what reads or writes their files gives up."""
        for key in [key for key in self._sessions if key[0] == model_id]:
            self._sessions.pop(key).table.release()
        for transfer in [t for t in self._transfers if t.model_id == model_id]:
            self._give_up(transfer)
        del self._models[model_id]

    def keep(
        self, model_id: str, name: str, tokens: NDArray[np.int32], namespace: str, *, to_disk: bool = True
    ) -> None:
        """Pins as much of the tokens' KV as the prefix cache has; replaces an older session of that name.

        For tokens that were just computed: they are found whole, except for a last, partial block that a
        running sequence is writing to. Of no tokens, nothing is kept, and the older session stays.
        """
        if not len(tokens):
            return
        if old := self._sessions.pop((model_id, name), None):
            old.table.release()
        table, num_tokens = _pin(self._models[model_id], tokens, namespace, to_disk)
        kept = tokens[:num_tokens].copy()
        self._sessions[model_id, name] = _Session(num_tokens, namespace, to_disk, kept, table)

    def unpin_oldest(self) -> bool:
        """Releases the blocks of the session that was not used for longest; they are then merely cached.

        Without such a session, a file that is being written or read gives up its blocks. False: nor that.
        """
        oldest = next((session for session in self._sessions.values() if session.is_pinned), None)
        if oldest is not None:
            oldest.table.release()
            oldest.tokens = _NO_TOKENS
            self._forget_unpinned()
        elif self._transfers:
            self._give_up(self._transfers[0])
        else:
            return False
        return True

    def remove(self, model_id: str, name: str) -> bool:
        """Forgets the session and unpins its blocks; False if there is none."""
        session = self._sessions.pop((model_id, name), None)
        if session is not None:
            session.table.release()
        return session is not None

    def statuses(self) -> list[SessionStatus]:
        """Least recently used first."""
        return [
            SessionStatus(
                model_id=model_id,
                name=name,
                num_tokens=session.num_tokens,
                kv_bytes=session.table.num_blocks * self._models[model_id].identity.block_bytes,
            )
            for (model_id, name), session in self._sessions.items()
        ]

    def tables(self, model_id: str) -> list[SequenceTable]:
        """Of all that holds blocks of this model: sessions, and files that are being written or read."""
        pinned = [session.table for (of, _), session in self._sessions.items() if of == model_id]
        return pinned + [t.blocks.table for t in self._transfers if t.model_id == model_id]

    def begin_save(self, model_id: str, name: str) -> SessionSave:
        """What writes the session to a file: run() in any thread, then end_save(). Raises SessionError."""
        session = self._sessions.get((model_id, name))
        if session is None:
            raise UnknownSession(f"session '{name}' is not in memory")
        if not session.is_pinned:
            raise SessionError(f"session '{name}' is no longer in memory: running requests needed its place")
        if not session.to_disk:
            raise SessionError(f"session '{name}' is not for the disk: its request had cache_to_disk false")
        self._sessions[model_id, name] = self._sessions.pop((model_id, name))  # as the latest used
        model = self._models[model_id]
        header = CheckpointHeader(
            kv=model.identity,
            name=name,
            namespace=session.namespace,
            num_tokens=session.num_tokens,
            created_at=datetime.now(UTC),
        )
        model.pool.retain(session.table.blocks)
        table = SequenceTable(model.pool)
        table.adopt(session.table.blocks)
        save = SessionSave(header, session.tokens, HeldBlocks(model.memory, table))
        self._transfers.append(save)
        return save

    def begin_load(self, model_id: str, name: str, checkpoint: Checkpoint) -> SessionLoad:
        """What reads the file into fresh blocks: run() in any thread, then end_load().

        Older sessions make room for it. The checkpoint stays the caller's to close.
        Raises SessionError, CheckpointMismatch.
        """
        model = self._models.get(model_id)
        if model is None:
            raise SessionError("the model is not loaded")
        header = checkpoint.header
        header.require(model.identity, name)
        table = SequenceTable(model.pool)
        while not table.grow(header.num_tokens):
            if not self.unpin_oldest():
                needed = binary_size(header.num_blocks * model.pool.block_bytes)
                raise SessionError(f"session '{name}' needs {needed} of KV memory, which is not free")
        load = SessionLoad(model_id, name, checkpoint, HeldBlocks(model.memory, table))
        self._transfers.append(load)
        return load

    def end_save(self, save: SessionSave) -> None:
        """After run(), however that ended."""
        self._give_up(save)

    def end_load(self, load: SessionLoad, *, succeeded: bool) -> None:
        """After run(). What was loaded is then a session, in place of an older one.

        Raises CheckpointError if the blocks were taken back before.
        """
        if succeeded:
            load.blocks.require_held()
            model, tokens = self._models[load.model_id], load.tokens
            model.cache.record_tail(model.cache.start(load.namespace), load.blocks.table, tokens)
        self._give_up(load)
        if succeeded:
            self.keep(load.model_id, load.name, tokens, load.namespace)

    def _give_up(self, transfer: Transfer) -> None:
        if transfer in self._transfers:
            self._transfers.remove(transfer)
            transfer.blocks.take_back()

    def _forget_unpinned(self) -> None:
        """Keeps the list of those that are only remembered from growing for ever."""
        unpinned = [key for key, session in self._sessions.items() if not session.is_pinned]
        for key in unpinned[:-_MAX_UNPINNED]:
            del self._sessions[key]


def _pin(
    model: ModelKv, tokens: NDArray[np.int32], namespace: str, to_disk: bool
) -> tuple[SequenceTable, int]:
    """What the cache has of the tokens, retained, and how many they are."""
    table, cursor = SequenceTable(model.pool), model.cache.start(namespace, to_disk=to_disk)
    num_tokens = model.cache.follow(cursor, table, tokens, len(tokens))
    if partial := model.cache.find_partial(cursor, tokens, len(tokens)):
        block, num_more = partial
        model.pool.retain([block])
        if model.pool.is_shared(block):  # with a running sequence, perhaps, which must be free to write to it
            model.pool.release([block])
        else:
            table.adopt([block])
            num_tokens += num_more
    return table, num_tokens
