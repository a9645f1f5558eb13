"""Blocks of the prefix cache on their way to and from files, in other threads than the engine's."""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from puna.backends.base import BlockMemory
from puna.kv import BLOCK_TOKENS, BlockId, BlockPool, PrefixCache
from puna.kv.prefix_cache import Node, NodeId
from puna.kv.prefix_files import PrefixFiles, StoredBlock
from puna.kv.prefix_store import PrefixStore

_AGE_STEP_NS = 1000  # by which a block's file is younger than that of the next
_TOKEN_BYTES = 4
_PAUSE_S = 0.002


class LentBlocks:
    """Blocks that file threads use until the engine wants them back.

    It does not wait for a disk: threads copy what they write before they write it, and what they have read
    after they have read it.
    """

    def __init__(self, memory: BlockMemory, pool: BlockPool, blocks: Sequence[BlockId]) -> None:
        """blocks: none before one that it builds on. The references to them are this object's."""
        self._memory = memory
        self._pool = pool
        self._blocks = list(blocks)
        self.is_wanted_back = False
        self._lock = threading.Lock()

    @property
    def blocks(self) -> list[BlockId]:
        """Those that are not released yet."""
        return list(self._blocks)

    @property
    def is_lent(self) -> bool:
        """Whether take_back() would release any."""
        return bool(self._blocks) and not self.is_wanted_back

    def copy(self, index: int) -> NDArray[np.uint8] | None:
        """The content [block_bytes] of one block; None if it is wanted back. For file threads."""
        with self._lock:
            return None if self.is_wanted_back else self._memory.read(self._blocks[index])

    def fill(self, index: int, content: NDArray[np.uint8]) -> bool:
        """Writes one block [block_bytes]; False if it is wanted back. For file threads."""
        with self._lock:
            if not self.is_wanted_back:
                self._memory.write(self._blocks[index], content)
            return not self.is_wanted_back

    def take_back(self) -> None:
        """Releases all. By the engine's thread."""
        with self._lock:
            self.is_wanted_back = True
        self.end()

    def end(self) -> None:
        """Releases what is left, when no thread will use it any more. By the engine's thread."""
        self._pool.release(self._blocks[::-1])
        self._blocks = []

    def detach(self) -> list[BlockId]:
        """The blocks, which now belong to the caller; none if they were wanted back."""
        if self.is_wanted_back:
            return []
        blocks, self._blocks = self._blocks, []
        return blocks


class PrefixRestore:
    """Looks for the blocks that go on with what is in memory: probe(), then, once it has blocks, read()."""

    def __init__(self, files: PrefixFiles, namespace: str, tokens: NDArray[np.int32], num_known: int) -> None:
        """tokens: of a sequence, as far as they may be found; num_known: blocks of them in memory."""
        self.found: list[StoredBlock] = []
        """Behind those in memory. Of the last perhaps only the start is wanted: it may go on differently."""
        self.blocks: LentBlocks | None = None
        """As many, to be filled."""
        self._files = files
        self._namespace = namespace
        self._tokens = tokens.copy()
        self._num_known = num_known
        self._next = itertools.count()
        self._is_sound = bytearray()
        self._has_failed = False
        self._has_looked = False

    @property
    def progress(self) -> int:
        """Changes while threads get on."""
        return self._has_looked + self._is_sound.count(1)

    @property
    def num_sound(self) -> int:
        """Blocks of `found` that were read without a gap."""
        end = self._is_sound.find(0)
        return len(self._is_sound) if end < 0 else end

    def tokens(self, num_found: int) -> NDArray[np.int32]:
        """Those in memory, and of so many blocks that were found."""
        found = b"".join(block.tokens for block in self.found[:num_found])
        known = self._tokens[: self._num_known * BLOCK_TOKENS]
        return np.concatenate([known, np.frombuffer(found, dtype=np.int32)])

    def probe(self) -> None:
        """Fills `found`. In one thread."""
        wanted = self._full_blocks()[self._num_known :]
        # With most blocks, those before it are there, too; if one is not, reading ends there.
        num_found = bisect_left(wanted, True, key=lambda block: not self._files.has(block))
        self.found = wanted[:num_found]
        if self.found:
            self._probe_partial(self.found[-1])
        self._is_sound = bytearray(len(self.found))
        self._has_looked = True

    def _full_blocks(self) -> list[StoredBlock]:
        """From the sequence's first on."""
        blocks, parent = [], self._files.root(self._namespace)
        for start in range(0, len(self._tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            tokens = self._tokens[start : start + BLOCK_TOKENS].tobytes()
            blocks.append(self._files.behind(parent, tokens))
            parent = blocks[-1].key
        return blocks

    def _probe_partial(self, last: StoredBlock) -> None:
        wanted = self._tokens[(self._num_known + len(self.found)) * BLOCK_TOKENS :]
        tokens = self._files.following(last)
        if len(wanted) and tokens.startswith(wanted[:1].tobytes()):
            block = self._files.behind(last.key, tokens)
            if self._files.has(block):
                self.found.append(block)

    def read(self) -> None:
        """Fills `blocks`. In as many threads as one likes."""
        assert self.blocks is not None
        content = np.empty(self._files.block_bytes, np.uint8)
        for index in self._next:
            if index >= len(self.found) or self._has_failed:
                return
            if not self._files.read(self.found[index], content) or not self.blocks.fill(index, content):
                self._has_failed = True
                return
            self._is_sound[index] = 1


class PrefixSave:
    """Makes files of blocks that have none."""

    def __init__(
        self,
        store: PrefixStore,
        files: PrefixFiles,
        nodes: list[Node],
        blocks: LentBlocks,
        is_engine_busy: Callable[[], bool],
        deadline_s: float | None = None,
    ) -> None:
        """nodes: of the blocks, most valuable first, and none before what it builds on.
        is_engine_busy: then writing takes its time. For any thread.
        deadline_s: of time.monotonic(); what is not written then, is not written.
        """
        self.blocks = blocks
        self.num_saved_tokens = 0
        self.deadline_s = deadline_s
        self.is_cut_short = False
        """The deadline came before all was written."""
        self.is_stuck = False
        """The disk does not answer: nobody waits for it any more."""
        self.progress = 0
        """Blocks that have a file now."""
        self._store = store
        self._files = files
        self._nodes = nodes
        self._is_engine_busy = is_engine_busy

    def run(self) -> None:
        """In one thread."""
        try:
            self._save()
        except OSError as error:
            self._store.report("cannot save cached prefixes", error)
        if self.num_saved_tokens:
            self._store.keep_limit()

    def _save(self) -> None:
        keys: dict[NodeId, bytes] = {}
        following: dict[NodeId, bytes] = {}
        for node in self._nodes:
            following.setdefault(node.parent, node.tokens)
        now_ns = time.time_ns()
        for index, node in enumerate(self._nodes[: self._store.limit_bytes // self._files.file_bytes]):
            if self.deadline_s is not None and time.monotonic() > self.deadline_s:
                self.is_cut_short = True
                return
            parent = self._files.root(node.parent) if isinstance(node.parent, str) else keys[node.parent]
            stored = self._files.behind(parent, node.tokens)
            keys[node.number] = stored.key
            content = self.blocks.copy(index)
            if content is None:
                return
            hint = following.get(node.number, b"")
            is_new = self._files.write(stored, content, hint, now_ns - index * _AGE_STEP_NS)
            self.progress += 1
            if is_new:
                self.num_saved_tokens += len(node.tokens) // _TOKEN_BYTES
                if not self._store.added(self._files.file_bytes):
                    return
                if self._is_engine_busy():
                    # Steps wait for their slowest thread: a core that one is kept from slows down all.
                    time.sleep(_PAUSE_S)


def savable_nodes(pool: BlockPool, cache: PrefixCache) -> list[Node]:
    """What the cache knows and may go to disk, used last first, but none before what it builds on."""
    # The partial block of a running sequence is being written to.
    in_use = [node for node in cache.nodes(pool.references()) if node.is_full]
    known = [*in_use, *cache.nodes(pool.cached())]
    nodes = {node.number: node for node in known if cache.may_go_to_disk(node)}
    ordered: dict[NodeId, Node] = {}
    for node in nodes.values():
        path = []
        while node.number not in ordered:
            path.append(node)
            if isinstance(node.parent, str):
                break
            node = nodes[node.parent]
        ordered |= {node.number: node for node in reversed(path)}
    return list(ordered.values())
