"""A model's KV that no running sequence holds: sessions, and what is on its way to or from a disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from puna._native import StepCosts
from puna.engine.caching.cache_policy import CachePolicy
from puna.engine.offload.lent_blocks import GroupBlock
from puna.engine.offload.pinned_prefix import PinnedPrefix
from puna.engine.sequences.sequence import Sequence
from puna.kv.files.block_files import BlockFiles
from puna.kv.files.identity import KvIdentity
from puna.kv.model_kv import ModelKv

_CHUNK_TOKENS = 256  # of a step that computes a prompt


class Transfer(Protocol):
    """Blocks that are being written or read."""

    @property
    def is_stuck(self) -> bool:
        """The disk does not answer, and is no longer waited for."""

    @property
    def held(self) -> Iterable[GroupBlock]: ...


@dataclass(slots=True)
class Session:
    """num_tokens: whose KV was pinned; None: it no longer is. used_last: the higher, the later."""

    num_tokens: int
    to_disk: bool
    used_last: int
    pin: PinnedPrefix | None


@dataclass(eq=False, slots=True)
class ModelOffload:
    """Of a model that is awake, or of one that went while its KV was still being written or read."""

    identity: KvIdentity
    kernels: str
    """What computes its KV."""
    kv: ModelKv
    policy: CachePolicy
    files: BlockFiles | None
    """None: nothing that is cached is kept on disk."""
    costs: StepCosts
    idle_since_s: float
    active: set[Sequence] = field(default_factory=set)
    """Sequences in the engine."""
    num_begun: int = 0
    """Those, and all that were there."""
    sessions: dict[str, Session] = field(default_factory=dict)
    """By name."""
    session_transfers: list[Transfer] = field(default_factory=list)
    saves: list[Transfer] = field(default_factory=list)
    restores: list[Transfer] = field(default_factory=list)
    drops: bool = False
    """It was saved, and gives its memory back."""
    waiting: list[Sequence] = field(default_factory=list)
    """Sequences of the same model, loaded again: the KV that they want may be on its way to disk."""

    @property
    def model_id(self) -> str:
        return self.identity.model_id

    @property
    def is_busy(self) -> bool:
        """Leaves out what nobody waits for any more."""
        return bool(self.active or self.is_saving or not all(restore.is_stuck for restore in self.restores))

    @property
    def is_saving(self) -> bool:
        """The same."""
        return not all(save.is_stuck for save in self.saves)

    def compute_s(self, num_tokens: int) -> float | None:
        """How long computing so many tokens of a prompt would take; None: that is not known."""
        chunk_s = self.costs.estimate(_CHUNK_TOKENS)
        return None if chunk_s is None else num_tokens / _CHUNK_TOKENS * chunk_s

    @property
    def held(self) -> Counter[GroupBlock]:
        """How often blocks are held, by sessions and while they are written or read."""
        pins = (session.pin.held for session in self.sessions.values() if session.pin is not None)
        transfers = [*self.session_transfers, *self.saves, *self.restores]
        return Counter(chain(*pins, *(transfer.held for transfer in transfers)))


def findable_tokens(sequence: Sequence) -> NDArray[np.int32]:
    """Those whose KV may come from elsewhere; see PrefixPolicy."""
    if not sequence.request.cache_prompt:
        return sequence.tokens[:0]
    return sequence.tokens[: sequence.num_findable]
