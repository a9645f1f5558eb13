"""Cached blocks that stay, for requests that go on with their tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from puna.engine.offload.lent_blocks import GroupBlock, blocks_from
from puna.kv.model_kv import ModelKv


class PinnedPrefix:
    """As much of some tokens' KV as the prefix tree has."""

    def __init__(self, kv: ModelKv, tokens: NDArray[np.int32], namespace: str, *, to_disk: bool) -> None:
        """A last, partial block is left out if somebody holds it: a running sequence may write to it."""
        cursor = kv.tree.start(namespace, to_disk=to_disk)
        self.table = kv.new_table()
        num_tokens = kv.tree.follow(cursor, self.table, tokens, len(tokens))
        self._kv = kv
        self._partial: tuple[int, ...] = ()  # a block of each group
        # With recurrent layers, the table has its own copies of the last tokens.
        found = None if kv.has_states else kv.tree.find_partial(cursor, tokens, len(tokens))
        if found is not None and not any(self._is_held(group, block) for group, block in enumerate(found[0])):
            self._partial, num_more = found
            for group, block in enumerate(self._partial):
                kv.blocks.retain(group, [block])
            num_tokens += num_more
        self.tokens = tokens[:num_tokens].copy()
        self.namespace = namespace

    @property
    def held_bytes(self) -> int:
        return self.table.held_bytes + (self._kv.block_bytes if self._partial else 0)

    @property
    def held(self) -> Iterator[GroupBlock]:
        for group in range(len(self._kv.groups)):
            yield from ((group, block) for block in self.table.blocks(group))
        yield from enumerate(self._partial)

    def blocks_from(self, firsts: Sequence[int]) -> list[list[int]]:
        """Of each group, from a first one on, which is held."""
        blocks = blocks_from(self._kv, self.table, firsts)
        for own, block in zip(blocks, self._partial, strict=False):
            own.append(block)
        return blocks

    def release(self) -> None:
        self.table.release()
        for group, block in enumerate(self._partial):
            self._kv.blocks.release(group, [block])
        self._partial = ()

    def _is_held(self, group: int, block: int) -> bool:
        return self._kv.groups[group].pool.num_references(block) > 0
