"""Whatever is allocated, freed and limited: exactly the pages of the allocated blocks are committed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from puna.kvcached.library import Context, Pool

pytestmark = pytest.mark.native

PAGE = 4096


class PoolMachine(RuleBasedStateMachine):
    """The model: a set of block ids, and the pages below them."""

    @initialize(
        num_blocks=st.integers(1, 60),
        block_bytes=st.sampled_from([64, 1000, 4032, PAGE, 5000, 6144, 3 * PAGE, 3 * PAGE + 64]),
        limit_pages=st.integers(0, 60),
    )
    def start(self, num_blocks: int, block_bytes: int, limit_pages: int) -> None:
        self.context = Context()
        self.limit = limit_pages * PAGE
        self.context.set_limit(self.limit)
        self.pool = Pool(self.context, num_blocks, block_bytes)
        assert self.pool.stats().page_bytes == PAGE
        self.memory = np.asarray(self.pool).reshape(num_blocks, -1)
        self.marks: dict[int, int] = {}
        self.last_mark = 0

    def pages(self) -> set[int]:
        step = self.pool.block_bytes
        return {
            page
            for id_ in self.marks
            for page in range(id_ * step // PAGE, ((id_ + 1) * step - 1) // PAGE + 1)
        }

    @rule(count=st.integers(0, 20))
    def alloc(self, count: int) -> None:
        before = len(self.pages())
        try:
            ids = self.pool.alloc(count)
        except MemoryError:
            assert count > 0
            # Refused only if there are not that many, or if their pages could exceed the limit.
            worst = count * ((self.pool.block_bytes - 1) // PAGE + 2)
            assert count > self.pool.num_blocks - len(self.marks) or (before + worst) * PAGE > self.limit
            return
        assert len(set(ids)) == count
        assert self.marks.keys().isdisjoint(ids)
        for id_ in ids:
            self.last_mark = self.last_mark % 250 + 1
            self.marks[id_] = self.last_mark
            self.memory[id_] = self.last_mark
        assert len(self.pages()) == before or len(self.pages()) * PAGE <= self.limit

    @precondition(lambda self: self.marks)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.marks)), unique=True))
        self.pool.free(np.array(ids, np.int64))
        for id_ in ids:
            del self.marks[id_]

    @rule(data=st.data())
    def free_what_is_free(self, data: st.DataObject) -> None:
        wrong = data.draw(st.sampled_from(sorted({-1, *range(self.pool.num_blocks + 1)} - self.marks.keys())))
        with pytest.raises(ValueError, match=f"block {wrong} is not allocated"):
            self.pool.free(np.array([*self.marks, wrong], np.int64))

    @rule(limit_pages=st.integers(0, 60))
    def limit_to(self, limit_pages: int) -> None:
        self.limit = limit_pages * PAGE
        assert self.context.set_limit(self.limit) == (len(self.pages()) * PAGE <= self.limit)

    @rule()
    def clear(self) -> None:
        self.pool.clear()
        self.marks.clear()

    @invariant()
    def accounts_are_exact(self) -> None:
        committed = len(self.pages()) * PAGE
        assert self.context.stats().committed_bytes == self.pool.stats().committed_bytes == committed
        assert self.pool.stats().num_used == len(self.marks)

    @invariant()
    def contents_are_kept(self) -> None:
        for id_, mark in self.marks.items():
            assert (self.memory[id_] == mark).all()

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            del self.memory


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPool = PoolMachine.TestCase
