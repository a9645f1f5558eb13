"""The identity of KV: where it is equal, blocks mean the same."""

from __future__ import annotations

import msgspec

from puna.backends.base import KvGroup
from puna.kv.blocks import BLOCK_TOKENS
from puna.kv.files.state_key import derive_key

_LAYOUT = 3
"""Changes with how KV lies in a block."""


class KvIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a model's KV, in whichever process it was computed."""

    model_id: str
    """Digest of the weights."""
    kv_type: str
    groups: tuple[KvGroup, ...]
    block_tokens: int = BLOCK_TOKENS

    def key(self, state_key: bytes, kernels: str) -> bytes:
        """For files of it: known only to those for whom it means the same.

        kernels: what computed it; that of others may differ in the last bits.
        """
        return derive_key(derive_key(state_key, b"blocks"), msgspec.json.encode((_LAYOUT, kernels, self)))


def first_needed_block(group: KvGroup, num_blocks: int) -> int:
    """The first of the group's blocks that the token behind so many full ones sees."""
    return 0 if group.window is None else max(num_blocks * BLOCK_TOKENS - group.window + 1, 0) // BLOCK_TOKENS
