"""What a sequence's prompt has on disk beyond what is in memory, and reading it."""

from __future__ import annotations

import itertools
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from puna.engine.offload.lent_blocks import LentBlocks
from puna.kv import BLOCK_TOKENS
from puna.kv.files.block_files import TOKEN_BYTES, BlockFiles, StoredBlock
from puna.kv.files.identity import first_needed_block

_STATE = -1


class PrefixRead:
    """Looks for the blocks that go on with what is in memory: probe(), then, once it has blocks, read().

    With recurrent layers it is a snapshot that is looked for, and what leads to it.
    """

    def __init__(
        self,
        files: BlockFiles,
        namespace: str,
        tokens: NDArray[np.int32],
        num_known: int,
        num_usable: int | None = None,
    ) -> None:
        """tokens: of a sequence, as far as they may be found; num_known: blocks of them in memory;
        num_usable: behind how many tokens it could go on now. None: behind all of these blocks.
        """
        self.num_known = num_known
        """Blocks in memory that are of use."""
        self.num_usable = num_known * BLOCK_TOKENS if num_usable is None else num_usable
        self.found: list[StoredBlock] = []
        """Behind those in memory. Of the last perhaps only the start is wanted: it may go on differently."""
        self.places: list[tuple[int, int]] = []
        """The blocks that have to be read: (number in `found`, group of layers); the state last."""
        self.firsts: list[int] = []
        """The first of them, by group."""
        self.position = 0
        """Of the token behind all that is wanted in full: what it sees is read."""
        self.lent: LentBlocks | None = None
        """Blocks at these places, to be filled."""
        self._files = files
        self._namespace = namespace
        self._tokens = tokens.copy()
        self._state: StoredBlock | None = None
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
        return len(self.found) if end < 0 else self.places[end][0]

    @property
    def is_whole(self) -> bool:
        """Whether all was read that there is to read."""
        return bool(self.places) and 0 not in self._is_sound

    @property
    def num_gained(self) -> int:
        """Tokens that need not be computed, if all is read."""
        return max(self.position - self.num_usable, 0)

    @property
    def num_bytes(self) -> int:
        """Of all that has to be read."""
        return sum(self._files.groups[group].block_bytes for _, group in self.places)

    @property
    def num_bytes_read(self) -> int:
        sizes = [self._files.groups[group].block_bytes for _, group in self.places]
        return sum(size for size, is_sound in zip(sizes, self._is_sound, strict=True) if is_sound)

    def tokens(self, num_found: int) -> NDArray[np.int32]:
        """Those in memory, and of so many blocks that were found."""
        if self._state is not None:
            return self._tokens[: self.position]
        found = b"".join(block.tokens for block in self.found[:num_found])
        known = self._tokens[: self.num_known * BLOCK_TOKENS]
        return np.concatenate([known, np.frombuffer(found, dtype=np.int32)])

    def probe(self) -> None:
        """Finds out what there is of use: the longest beginning behind which every group has what a token
        sees. In one thread.
        """
        num_full = len(self._tokens) // BLOCK_TOKENS
        chain = self._files.chain(self._namespace, self._tokens[: num_full * BLOCK_TOKENS].tobytes())
        wanted = chain[self.num_known :]
        keeps_all = [
            number
            for number, group in enumerate(self._files.groups)
            if group.window is None and not group.is_state
        ]
        # With most blocks, those before it are there, too; if one is not, reading ends there.
        num_found = bisect_left(wanted, True, key=lambda block: not self._has(block, keeps_all))
        if self._files.groups[-1].is_state:
            self._find_state(chain, self.num_known + num_found)
        else:
            self.found = wanted[: self._num_resumable(wanted, num_found)]
            self._plan_reading(len(self.found))
            if self.found:
                self._probe_partial(self.found[-1])
        self._list_places()
        self._has_looked = True

    def _plan_reading(self, num_full: int) -> None:
        """num_full: blocks of `found`."""
        groups = range(len(self._files.groups))
        self.firsts = [self._first_needed(group, num_full) for group in groups]
        self.position = (self.num_known + num_full) * BLOCK_TOKENS

    def _list_places(self) -> None:
        tokens = [number for number, group in enumerate(self._files.groups) if not group.is_state]
        self.places = [
            (number, group)
            for number in range(len(self.found))
            for group in tokens
            if number >= self.firsts[group]
        ]
        if self._state is not None:
            self.places.append((_STATE, len(tokens)))
        self._is_sound = bytearray(len(self.places))

    def _find_state(self, chain: list[StoredBlock], num_blocks: int) -> None:
        """Of the snapshots behind tokens of which so many blocks are there, the last one."""
        states = len(self._files.groups) - 1
        for end in range(num_blocks, self.num_usable // BLOCK_TOKENS - 1, -1):
            odd = self._find_odd(chain[end - 1].key if end else None, end, states)
            if odd is None and (
                end * BLOCK_TOKENS <= self.num_usable or not self._has(chain[end - 1], [states])
            ):
                continue
            self.num_known = min(self.num_known, end)
            self.found = chain[self.num_known : end]
            self._plan_reading(len(self.found))
            if odd is not None:
                self.found.append(odd)
                self.position += len(odd.tokens) // TOKEN_BYTES
            self._state = odd or chain[end - 1]
            return

    def _find_odd(self, parent: bytes | None, index: int, states: int) -> StoredBlock | None:
        """A snapshot within the block `index`. parent: the key of the one before."""
        start = index * BLOCK_TOKENS
        rest = self._tokens[start : start + BLOCK_TOKENS - 1]
        key = self._files.root(self._namespace) if parent is None else parent
        for count in range(len(rest), max(self.num_usable - start, 0), -1):
            block = self._files.behind(key, rest[:count].tobytes())
            if self._files.has(block, states) and self._has(block, list(range(states))):
                return block
        return None

    def _has(self, block: StoredBlock, groups: list[int]) -> bool:
        return all(self._files.has(block, group) for group in groups)

    def _num_resumable(self, wanted: list[StoredBlock], num_found: int) -> int:
        """Of so many that are there of groups without a window: as far as windows have what they reach."""
        while (missing := self._last_missing(wanted, num_found)) is not None:
            num_found = missing
        return num_found

    def _last_missing(self, wanted: list[StoredBlock], num_found: int) -> int | None:
        """The last block within a window behind so many of which that group has no file."""
        windowed = (number for number, group in enumerate(self._files.groups) if group.window is not None)
        for group in windowed:
            for number in reversed(range(self._first_needed(group, num_found), num_found)):
                if not self._files.has(wanted[number], group):
                    return number
        return None

    def _first_needed(self, group: int, num_found: int) -> int:
        """Of what was found: the first that the token behind it sees. What is in memory has what it sees."""
        num_blocks = self.num_known + num_found
        return max(first_needed_block(self._files.groups[group], num_blocks) - self.num_known, 0)

    def _probe_partial(self, last: StoredBlock) -> None:
        wanted = self._tokens[(self.num_known + len(self.found)) * BLOCK_TOKENS :]
        tokens = self._files.following(last)
        if len(wanted) and tokens.startswith(wanted[:1].tobytes()):
            block = self._files.behind(last.key, tokens)
            if self._has(block, list(range(len(self._files.groups)))):
                self.found.append(block)

    def read(self) -> None:
        """Fills the blocks. In as many threads as one likes."""
        assert self.lent is not None
        for index in self._next:
            if index >= len(self.places) or self._has_failed:
                return
            number, group = self.places[index]
            stored, place = (
                (self._state, 0) if number == _STATE else (self.found[number], number - self.firsts[group])
            )
            assert stored is not None
            content = np.empty(self._files.groups[group].block_bytes, dtype=np.uint8)
            if not self._files.read_or_remove(stored, content, group) or not self.lent.write(
                group, place, content
            ):
                self._has_failed = True
                return
            self._is_sound[index] = 1
