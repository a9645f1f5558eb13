"""Finds blocks by the tokens whose KV they hold."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, NewType, TypeAlias

import numpy as np
from numpy.typing import NDArray

from puna.kv.block_pool import BlockId, BlockPool
from puna.kv.blocks import BLOCK_TOKENS
from puna.kv.sequence_table import SequenceTable

_TOKEN_BYTES = 4
_BLOCK_KEY_BYTES = BLOCK_TOKENS * _TOKEN_BYTES

NodeNumber = NewType("NodeNumber", int)
NodeId: TypeAlias = NodeNumber | str
"""Numbers are never used twice. A root is a namespace: it is no node, so nothing is left of an unused one."""


@dataclass(slots=True)
class Cursor:
    """How far the front of a sequence's table is known to the cache: the node of its last known block."""

    node: NodeId
    num_blocks: int = 0
    to_disk: bool = True
    """Whether what is recorded or found through it may be written to a disk."""


class Node(NamedTuple):
    """A block's tokens, int32, following those of its parent. Those of leaves may be fewer than a block's."""

    number: NodeNumber
    parent: NodeId
    tokens: bytes
    block: BlockId

    @property
    def is_full(self) -> bool:
        return len(self.tokens) == _BLOCK_KEY_BYTES


class PrefixCache:
    """A tree over the blocks of one pool; the path from a root to a node spells the tokens before it.

    A node is looked up by its parent and its tokens, all of them: there is no hash that could collide. Every
    table that holds a node's block also holds those of its ancestors, in its first entries; so ancestors are
    free, and evicted, last. Tokens are int32, and where they are all of a sequence, its table's first entries
    belong to them.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._next_number = 0
        self._nodes: dict[tuple[NodeId, bytes], Node] = {}
        self._by_block: dict[BlockId, Node] = {}
        # The tokens of each node's children, sorted: what has the longest common start with some tokens
        # stands next to where these would stand.
        self._children: dict[NodeId, list[bytes]] = {}
        self._memory_only: set[NodeNumber] = set()
        pool.cache = self

    def start(self, namespace: str, *, to_disk: bool = True) -> Cursor:
        """Before the first token. Only those of the namespace find what is recorded in it."""
        return Cursor(namespace, to_disk=to_disk)

    def follow(self, cursor: Cursor, table: SequenceTable, tokens: NDArray[np.int32], limit: int) -> int:
        """Appends to the table, retained, the blocks that hold the next tokens, while at most `limit` tokens
        are covered; advances the cursor. A table that has other blocks behind the cursor stays as it is.

        tokens: all of the sequence. Returns the number of tokens covered from the first on.
        """
        covered = cursor.num_blocks * BLOCK_TOKENS
        if table.num_blocks != cursor.num_blocks or limit < covered + BLOCK_TOKENS:
            return covered
        found = []
        wanted = tokens[covered:limit].tobytes()
        for end in range(_BLOCK_KEY_BYTES, len(wanted) + 1, _BLOCK_KEY_BYTES):
            node = self._nodes.get((cursor.node, wanted[end - _BLOCK_KEY_BYTES : end]))
            if node is None:
                break
            found.append(node.block)
            self._admit_to_disk(cursor, node)
            cursor.node = node.number
        self._pool.retain(found)
        table.adopt(found)
        cursor.num_blocks += len(found)
        return cursor.num_blocks * BLOCK_TOKENS

    def find_partial(
        self, cursor: Cursor, tokens: NDArray[np.int32], limit: int
    ) -> tuple[BlockId, int] | None:
        """The block behind the cursor that has most of the next tokens at its start, and how many these are;
        never more than `limit` tokens from the sequence's first on. For copying: they may be part of a block.

        The block is not retained: acquiring others may evict it.
        """
        siblings = self._children.get(cursor.node)
        wanted = _next_block(cursor, tokens[: max(limit, 0)])
        if not siblings or not wanted:
            return None
        place = bisect_left(siblings, wanted)
        candidates = siblings[max(place - 1, 0) : place + 1]
        best = max(candidates, key=lambda sibling: _common_tokens(sibling, wanted))
        common = _common_tokens(best, wanted)
        return (self._nodes[cursor.node, best].block, common) if common else None

    def next_key(self, cursor: Cursor, tokens: NDArray[np.int32]) -> Hashable:
        """Names the block behind the cursor with the sequence's next tokens, as far as there are any: to
        compute what has an equal key is to compute the same.
        """
        return cursor.node, _next_block(cursor, tokens)

    def record(self, cursor: Cursor, table: SequenceTable, tokens: NDArray[np.int32]) -> None:
        """Makes the full blocks behind the cursor findable and advances it.

        Where another block with the same tokens is known, the table gets that one in place of its own.
        tokens: all whose KV is in the table. Does nothing if the table's blocks up to the cursor were
        forgotten or replaced.
        """
        num_full = len(tokens) // BLOCK_TOKENS
        if cursor.num_blocks >= num_full or not self._is_current(cursor, table):
            return
        while cursor.num_blocks < num_full:
            key = _next_block(cursor, tokens)
            node = self._nodes.get((cursor.node, key))
            if node is None:
                node = self._insert(cursor, key, table.blocks[cursor.num_blocks])
            else:
                self._admit_to_disk(cursor, node)
                self._deduplicate(table, cursor.num_blocks, node.block)
            cursor.node = node.number
            cursor.num_blocks += 1

    def record_tail(self, cursor: Cursor, table: SequenceTable, tokens: NDArray[np.int32]) -> None:
        """As record(), and makes the partial last block findable, for find_partial().

        The table's owner may write on behind these tokens. They are recorded again by the next call.
        """
        self.record(cursor, table, tokens)
        tail = _next_block(cursor, tokens)
        if not tail or not self._is_current(cursor, table):
            return
        own = table.blocks[cursor.num_blocks]
        siblings = self._children.get(cursor.node, [])
        place = bisect_left(siblings, tail)
        if place == len(siblings) or not siblings[place].startswith(tail):
            self._insert(cursor, tail, own)
            return
        known = self._nodes[cursor.node, siblings[place]]
        if known.tokens == tail:
            self._admit_to_disk(cursor, known)
        if known.tokens != tail or known.block != own:
            self.forget(own)  # another block has these tokens and is there already

    def forget(self, block: BlockId) -> None:
        """The block's content will change: it can no longer be found, nor what builds on it."""
        node = self._by_block.get(block)
        if node is None:
            return
        subtree = [node]
        for ancestor in subtree:  # grows while it is walked
            subtree += [
                self._nodes[ancestor.number, tokens] for tokens in self._children.get(ancestor.number, ())
            ]
        for forgotten in reversed(subtree):
            self._remove(forgotten)

    def nodes(self, blocks: Iterable[BlockId]) -> list[Node]:
        """Those of the blocks that can be found, in their order."""
        return [self._by_block[block] for block in blocks if block in self._by_block]

    def may_go_to_disk(self, node: Node) -> bool:
        """Whether somebody who allows that needed its tokens; the same is then true of its ancestors."""
        return node.number not in self._memory_only

    def num_recorded(self, block: BlockId) -> int:
        """Tokens at the start of the block that can be found."""
        node = self._by_block.get(block)
        return len(node.tokens) // _TOKEN_BYTES if node else 0

    def check(self) -> None:
        """The tree hangs together, and a block stands in it once; ancestors are free, and evicted, last."""
        assert len(self._nodes) == len(self._by_block) == sum(map(len, self._children.values()))
        numbers = {node.number for node in self._nodes.values()}
        for (parent, tokens), node in self._nodes.items():
            assert (node.parent, node.tokens) == (parent, tokens), "a node under a wrong key"
            assert self._by_block[node.block] is node, "a block with two nodes"
            assert isinstance(parent, str) or parent in numbers, "a node without its parent"
            siblings = self._children[parent]
            assert siblings[bisect_left(siblings, tokens)] == tokens, "a child that is not in order"
            full = len(tokens) == _BLOCK_KEY_BYTES
            assert full or node.number not in self._children, "a partial block with a child"
            hidden = node.number in self._memory_only
            assert hidden or parent not in self._memory_only, "a block for the disk behind one that is not"
        assert self._memory_only <= numbers

    def _is_current(self, cursor: Cursor, table: SequenceTable) -> bool:
        if cursor.num_blocks == 0:
            return True
        node = self._by_block.get(table.blocks[cursor.num_blocks - 1])
        return node is not None and node.number == cursor.node

    def _admit_to_disk(self, cursor: Cursor, node: Node) -> None:
        if cursor.to_disk and self._memory_only:
            self._memory_only.discard(node.number)

    def _insert(self, cursor: Cursor, tokens: bytes, block: BlockId) -> Node:
        """A new node behind the cursor; the block's shorter one, if it has one, is replaced."""
        parent = cursor.node
        if shorter := self._by_block.get(block):
            unchanged = shorter.parent == parent and tokens.startswith(shorter.tokens)
            assert unchanged, f"block {block} was rewritten while it could be found"
            self._remove(shorter)
        node = Node(NodeNumber(self._next_number), parent, tokens, block)
        self._next_number += 1
        self._nodes[parent, tokens] = self._by_block[block] = node
        insort(self._children.setdefault(parent, []), tokens)
        if not cursor.to_disk:
            self._memory_only.add(node.number)
        return node

    def _deduplicate(self, table: SequenceTable, index: int, known: BlockId) -> None:
        own = table.blocks[index]
        if own == known:
            return
        self.forget(own)
        self._pool.retain([known])
        table.replace(index, known)
        self._pool.release([own])

    def _remove(self, node: Node) -> None:
        siblings = self._children[node.parent]
        del siblings[bisect_left(siblings, node.tokens)]
        if not siblings:
            del self._children[node.parent]
        del self._nodes[node.parent, node.tokens], self._by_block[node.block]
        self._memory_only.discard(node.number)
        self._pool.uncache(node.block)


def _next_block(cursor: Cursor, tokens: NDArray[np.int32]) -> bytes:
    begin = cursor.num_blocks * BLOCK_TOKENS
    return tokens[begin : begin + BLOCK_TOKENS].tobytes()


def _common_tokens(a: bytes, b: bytes) -> int:
    """Tokens that both start with."""
    length = min(len(a), len(b))
    differing = int.from_bytes(a[:length], "little") ^ int.from_bytes(b[:length], "little")
    if differing == 0:
        return length // _TOKEN_BYTES
    lowest_bit = (differing & -differing).bit_length() - 1
    return lowest_bit // (8 * _TOKEN_BYTES)
