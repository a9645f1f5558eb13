"""Which of a model's cached blocks are written to disk, and in which order."""

from __future__ import annotations

import time
from typing import Protocol

from puna._native import PrefixNode, UnsavedNodes
from puna.engine.offload.model_offload import ModelOffload
from puna.engine.offload.saving.node_files import NodeFiles, Path
from puna.kv.files.block_files import BlockFiles, StoredBlock
from puna.kv.model_kv import ModelKv

_FEW = 256
_AGE_STEP_NS = 1000  # by which a block's file is younger than that of the next
_FEW_BYTES = 32 << 20
_MANY = 64


class NodeSource(Protocol):
    """next() and leave() are for the engine's thread, by turns; all else is for the one that writes."""

    @property
    def is_all(self) -> bool:
        """Whether it is all that the model has."""

    @property
    def is_behind(self) -> bool:
        """Whether there is so much that it had better be written sooner."""

    def next(self) -> list[PrefixNode] | None:
        """Some nodes, none before what it builds on; perhaps none though more will follow. None: no more."""

    def leave(self, unwritten: list[PrefixNode]) -> None:
        """Of the last ones, those that have got no files because somebody needed their blocks."""

    def place(self, node: PrefixNode) -> tuple[StoredBlock, int]:
        """Name and age, in nanoseconds, of the node's files."""

    def written(self, node: PrefixNode) -> None:
        """The node's files are there."""


class ListedNodes:
    """All that are there when it begins, last used first."""

    is_all = True
    is_behind = False

    def __init__(self, model: ModelOffload, files: BlockFiles) -> None:
        self._listing = model.kv.tree.list_nodes()
        self._files = files
        self._keys: dict[int, bytes] = {}
        self._modified_ns = time.time_ns()

    def next(self) -> list[PrefixNode] | None:
        return self._listing.next(_FEW)

    def leave(self, unwritten: list[PrefixNode]) -> None:
        pass

    def place(self, node: PrefixNode) -> tuple[StoredBlock, int]:
        parent = self._files.root(node.parent) if isinstance(node.parent, str) else self._keys[node.parent]
        stored = self._files.behind(parent, node.tokens)
        self._keys[node.number] = stored.key
        self._modified_ns -= _AGE_STEP_NS
        return stored, self._modified_ns

    def written(self, node: PrefixNode) -> None:
        pass


class FreshNodes:
    """The first few of those that have come since the model woke."""

    is_all = False

    def __init__(self, kv: ModelKv, unsaved: UnsavedNodes, names: NodeFiles) -> None:
        self._kv = kv
        self._unsaved = unsaved
        self._names = names
        self._nodes: list[PrefixNode] | None = None
        self._paths: dict[int, Path] = {}

    @property
    def is_behind(self) -> bool:
        return self._unsaved.num_fresh > _MANY

    def next(self) -> list[PrefixNode] | None:
        if self._nodes is not None:
            return None
        self._names.forget_some()
        self._nodes, placed = self._unsaved.take(self._limit), set[int | str]()
        for node in self._nodes:
            if node.parent not in placed and self._names.needs_path(node):
                path = self._kv.tree.path_to(node)
                assert path is not None, "it was just taken"
                self._paths[node.number] = path
            placed |= {node.number, node.parent}
        return self._nodes

    @property
    def _limit(self) -> int:
        return max(min(_FEW_BYTES // max(self._kv.block_bytes, 1), _MANY), 1)

    def leave(self, unwritten: list[PrefixNode]) -> None:
        self._unsaved.put_back(unwritten)
        self._kv.tree.restore_order(self._nodes or [])  # what builds on others still goes first

    def place(self, node: PrefixNode) -> tuple[StoredBlock, int]:
        return self._names.place(node, self._paths.get(node.number))

    def written(self, node: PrefixNode) -> None:
        self._names.written(node)
