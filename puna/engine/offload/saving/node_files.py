"""What the files of a prefix tree's nodes are called, and how old they are."""

from __future__ import annotations

import time
from dataclasses import dataclass

from puna._native import PrefixNode
from puna.kv.files.block_files import BlockFiles, StoredBlock

_AGE_STEP_NS = 1000  # by which a block's file is younger than that of the next
_RENEWED_AFTER_NS = 300 * 10**9
_MOST_KNOWN = 20_000

Path = tuple[str, bytes]
"""Namespace, and tokens."""


@dataclass(slots=True)
class _Named:
    stored: StoredBlock
    following: bytes
    """The hint in its file."""
    modified_ns: int


class NodeFiles:
    """For nodes that are written while others still come: each file is a little older than that of the block
    before, and when something new builds on old files, they all are dated anew. For the thread that writes.
    """

    def __init__(self, files: BlockFiles) -> None:
        self.files = files
        self._named: dict[int, _Named] = {}

    def forget_some(self) -> None:
        """So that what is known does not grow for ever."""
        if len(self._named) > _MOST_KNOWN:
            self._named.clear()

    def needs_path(self, node: PrefixNode) -> bool:
        """Whether place() has to know where the node is."""
        if isinstance(node.parent, str):
            return False
        parent = self._named.get(node.parent)
        return parent is None or parent.modified_ns < time.time_ns() - _RENEWED_AFTER_NS

    def place(self, node: PrefixNode, path: Path | None) -> tuple[StoredBlock, int]:
        """Name and age of the node's files. path: what it builds on, if it is needed."""
        if isinstance(node.parent, str):
            stored, modified_ns = self.files.behind(self.files.root(node.parent), node.tokens), time.time_ns()
        else:
            if path is not None:
                self._renew(node.parent, *path)
            parent = self._named[node.parent]
            stored = self.files.behind(parent.stored.key, node.tokens)
            modified_ns = parent.modified_ns - _AGE_STEP_NS
        self._named[node.number] = _Named(stored, node.following, modified_ns)
        return stored, modified_ns

    def written(self, node: PrefixNode) -> None:
        """The node was used last of those behind its parent, whose file now says so."""
        if not isinstance(node.parent, str):
            parent = self._named[node.parent]
            if parent.following != node.tokens:
                self.files.renew(parent.stored, node.tokens, parent.modified_ns)
                parent.following = node.tokens

    def _renew(self, number: int, namespace: str, tokens: bytes) -> None:
        """Dates all files up to that node's."""
        chain, modified_ns = self.files.chain(namespace, tokens), time.time_ns()
        for stored in chain:
            for group in range(len(self.files.groups)):
                self.files.set_modified(stored, modified_ns, group)
            modified_ns -= _AGE_STEP_NS
        following = self.files.following(chain[-1])
        self._named[number] = _Named(chain[-1], following, modified_ns + _AGE_STEP_NS)
