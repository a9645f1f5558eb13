"""Sessions keep blocks from being evicted, give way to whoever runs, and survive in files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from numpy.typing import NDArray

from puna._native import StepCosts
from puna.backends.base import KvGroup
from puna.engine import EngineSettings
from puna.engine.caching.cache_policy import PrefixPolicy
from puna.engine.offload.disk import PATIENCE_S
from puna.engine.offload.model_offload import ModelOffload
from puna.engine.offload.session_status import SessionError, UnknownSession
from puna.engine.offload.sessions import Sessions
from puna.kv import Budget
from puna.kv.files.identity import KvIdentity
from puna.kv.files.session_manifest import InvalidSessionName, SavedSessionError, check_session_name
from puna.kv.model_kv import ModelKv
from tests.engine.offload.fake_threads import FakeThreads
from tests.engine.toy import ToyClock
from tests.engine.toy_memory import ToyMemory

pytestmark = pytest.mark.native

GROUPS = KvGroup(num_layers=1, block_bytes=64), KvGroup(num_layers=1, block_bytes=32, window=20)
BLOCK_BYTES = 96


def tokens_of(*parts: int) -> NDArray[np.int32]:
    """parts: lengths; equal lengths at equal places give equal tokens."""
    return np.concatenate([np.arange(length, dtype=np.int32) + 1000 * length for length in parts])


@dataclass
class Bench:
    """One model with memory for `num_blocks` blocks; the "KV" of a token is its id."""

    sessions: Sessions
    models: list[ModelOffload]
    kv: ModelKv
    threads: FakeThreads
    clock: ToyClock
    ends: list[Exception | None]
    """Of what was begun."""

    @classmethod
    def make(
        cls,
        directory: Path | None = None,
        num_blocks: int = 100,
        model_id: str = "m",
        other: Bench | None = None,
    ) -> Bench:
        settings = EngineSettings(sessions_dir=str(directory), state_key=bytes(32))
        clock, threads = ToyClock(), FakeThreads()
        models = other.models if other else []
        sessions = other.sessions if other else Sessions(settings, clock, models)
        if other is None and directory is not None:
            sessions.use_threads(threads)
        memories = [ToyMemory(num_blocks, group.block_bytes) for group in GROUPS]
        kv = ModelKv(GROUPS, memories, Budget(num_blocks * BLOCK_BYTES))
        identity = KvIdentity(model_id=model_id, kv_type="f16", groups=GROUPS)
        models.append(ModelOffload(identity, "cpu", kv, PrefixPolicy(kv), None, StepCosts(), 0.0))
        return cls(sessions, models, kv, threads, clock, [])

    @property
    def model(self) -> ModelOffload:
        return next(model for model in self.models if model.kv is self.kv)

    @property
    def num_used(self) -> int:
        """Blocks that somebody holds."""
        return self.kv.groups[0].pool.num_used

    def run(self, tokens: NDArray[np.int32], salt: str = "") -> None:
        """What a request leaves behind: its blocks, cached."""
        table = self.kv.new_table()
        while not table.grow(len(tokens)):
            assert self.sessions.give_up_one()
        for group, memory in enumerate(self.kv.memories):
            for index, block in enumerate(table.blocks(group)):
                part = tokens[16 * index : 16 * index + 16]
                content = np.zeros(memory.block_bytes // 4, np.int32)
                content[: len(part)] = part[: len(content)]
                memory.write(block, content.view(np.uint8))
        self.kv.tree.record_tail(self.kv.tree.start(salt), table, tokens)
        table.release()

    def keep(self, name: str, tokens: NDArray[np.int32], salt: str = "") -> None:
        self.run(tokens, salt)
        self.sessions.keep(self.model, name, tokens, salt)

    def cached(self, tokens: NDArray[np.int32], salt: str = "") -> NDArray[np.int32]:
        """The KV that a request for these tokens would find."""
        table, cursor = self.kv.new_table(), self.kv.tree.start(salt)
        self.kv.tree.follow(cursor, table, tokens, len(tokens))
        memory = self.kv.groups[0].memory
        blocks = [memory.read(block).view(np.int32) for block in table.blocks()]
        if partial := self.kv.tree.find_partial(cursor, tokens, len(tokens)):
            blocks.append(memory.read(partial[0][0]).view(np.int32)[: partial[1]])
        table.release()
        return np.concatenate(blocks) if blocks else np.empty(0, dtype=np.int32)

    def crowd_out(self) -> None:
        """Evicts whatever can be evicted."""
        while self.kv.drop_cached():
            pass

    def save(self, name: str) -> None:
        self.begin_save(name)
        self.finish()

    def load(self, name: str) -> None:
        self.begin_load(name)
        self.finish()

    def begin_save(self, name: str) -> None:
        self.sessions.save(self.model.model_id, name, self.ends.append)

    def begin_load(self, name: str) -> None:
        self.sessions.load(self.model.model_id, name, self.ends.append)

    def finish(self) -> None:
        """What was begun; raises what it failed with."""
        self.threads.run()
        if error := self.ends.pop(0):
            raise error

    def pinned(self) -> dict[str, int]:
        """Tokens by name, of what is pinned."""
        return {s.name: s.num_tokens for s in self.sessions.statuses() if s.pinned}

    def check(self) -> None:
        self.kv.check()
        held = self.model.held
        for index, group in enumerate(self.kv.groups):
            references = {block: count for (of, block), count in held.items() if of == index}
            assert group.pool.references() == references


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "_", "9", "x" * 64])
def test_names_that_are_fit_for_files(name: str):
    check_session_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "-a", ".a", "a/b", "a b", "ä", "a\n", "a\0", "x" * 65])
def test_other_names_are_refused(name: str):
    with pytest.raises(InvalidSessionName):
        check_session_name(name)


@pytest.mark.parametrize("num_tokens", [1, 15, 16, 17, 100])
def test_a_session_outlives_eviction(num_tokens: int):
    bench = Bench.make()
    tokens = tokens_of(num_tokens)
    bench.keep("a", tokens)
    bench.run(tokens_of(33))
    bench.crowd_out()
    assert bench.cached(tokens).tolist() == tokens.tolist()
    assert len(bench.cached(tokens_of(33))) == 0
    [status] = bench.sessions.statuses()
    assert (status.num_tokens, status.kv_bytes) == (num_tokens, bench.kv.used_bytes)


def test_a_removed_session_is_evicted():
    bench = Bench.make()
    bench.keep("a", tokens_of(40))
    assert bench.sessions.remove("m", "a")
    assert not bench.sessions.remove("m", "a")
    assert bench.num_used == 0
    assert bench.sessions.statuses() == []


def test_a_name_has_one_content():
    bench = Bench.make()
    bench.keep("a", tokens_of(40))
    bench.keep("a", tokens_of(50))
    bench.crowd_out()
    assert bench.pinned() == {"a": 50}
    assert len(bench.cached(tokens_of(40))) == 0


def test_the_same_content_again_is_pinned_again():
    bench = Bench.make()
    for _ in range(2):
        bench.keep("a", tokens_of(40))
        bench.crowd_out()
    assert bench.cached(tokens_of(40)).tolist() == tokens_of(40).tolist()


def test_nothing_computed_replaces_nothing():
    bench = Bench.make()
    bench.keep("a", tokens_of(40))
    bench.sessions.keep(bench.model, "a", np.empty(0, dtype=np.int32), "")
    assert bench.pinned() == {"a": 40}


def test_only_the_right_salt_finds_a_session():
    bench = Bench.make()
    bench.keep("a", tokens_of(40), salt="mine")
    assert len(bench.cached(tokens_of(40), "mine")) == 40
    assert len(bench.cached(tokens_of(40), "yours")) == 0


def test_a_block_that_somebody_writes_to_is_not_pinned():
    bench = Bench.make()
    tokens = tokens_of(16, 4)
    table = bench.kv.new_table()
    table.grow(len(tokens))
    bench.kv.tree.record_tail(bench.kv.tree.start(""), table, tokens)
    bench.sessions.keep(bench.model, "a", tokens, "")
    pool = bench.kv.groups[0].pool
    assert [pool.num_references(block) for block in table.blocks()] == [2, 1]
    assert bench.pinned() == {"a": 16}


def test_the_least_recently_used_goes_first(tmp_path: Path):
    bench = Bench.make(tmp_path)
    for number, name in enumerate("abc"):
        bench.keep(name, tokens_of(40 + number))
    bench.save("a")
    assert bench.sessions.give_up_one()
    assert list(bench.pinned()) == ["c", "a"]
    assert [(s.name, s.num_tokens, s.pinned) for s in bench.sessions.statuses()] == [
        ("b", 41, False),
        ("c", 42, True),
        ("a", 40, True),
    ]
    assert len(bench.cached(tokens_of(41))) == 41  # still cached
    assert bench.sessions.give_up_one()
    assert bench.sessions.give_up_one()
    assert not bench.sessions.give_up_one()
    assert bench.num_used == 0


def test_the_list_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("puna.engine.offload.sessions._MAX_UNPINNED", 3)
    bench = Bench.make()
    for number in range(10):
        bench.keep(f"s{number}", tokens_of(20 + number))
    while bench.sessions.give_up_one():
        pass
    assert [status.name for status in bench.sessions.statuses()] == ["s7", "s8", "s9"]


def test_files_bring_a_session_into_another_engine(tmp_path: Path):
    bench, tokens = Bench.make(tmp_path), tokens_of(100, 7)
    bench.keep("a", tokens, salt="s")
    bench.save("a")
    other = Bench.make(tmp_path)
    other.load("a")
    other.crowd_out()
    assert other.cached(tokens, "s").tolist() == tokens.tolist()
    assert other.pinned() == {"a": 107}
    bench.check()
    other.check()


def test_loading_what_is_there_already_shares_its_blocks(tmp_path: Path):
    bench = Bench.make(tmp_path)
    bench.keep("a", tokens_of(40))
    bench.save("a")
    bench.load("a")
    assert bench.num_used == 3
    assert bench.pinned() == {"a": 40}


def test_sessions_that_cannot_be_saved(tmp_path: Path):
    bench = Bench.make(tmp_path)
    with pytest.raises(UnknownSession, match="session 'a' is not in memory"):
        bench.save("a")
    bench.keep("a", tokens_of(40))
    bench.sessions.give_up_one()
    with pytest.raises(SessionError, match="no longer in memory"):
        bench.save("a")
    nowhere = Bench.make()
    nowhere.keep("a", tokens_of(40))
    for begin in (nowhere.save, nowhere.load):
        with pytest.raises(SavedSessionError, match="no place on disk"):
            begin("a")


def test_loading_makes_room_among_older_sessions(tmp_path: Path):
    bench = Bench.make(tmp_path, num_blocks=10)
    bench.keep("a", tokens_of(96))
    bench.save("a")
    bench.sessions.remove("m", "a")
    bench.keep("b", tokens_of(80))
    bench.load("a")
    assert bench.pinned() == {"a": 96}


def test_loading_takes_nothing_from_running_sequences(tmp_path: Path):
    bench = Bench.make(tmp_path, num_blocks=10)
    bench.keep("a", tokens_of(96))
    bench.save("a")
    bench.sessions.remove("m", "a")
    running = bench.kv.new_table()
    running.grow(80)
    with pytest.raises(SessionError, match="needs 448 B of KV memory"):
        bench.load("a")
    assert bench.num_used == running.num_blocks


def test_a_model_that_is_not_loaded_takes_no_session(tmp_path: Path):
    bench = Bench.make(tmp_path)
    bench.keep("a", tokens_of(5))
    bench.save("a")
    bench.begin_load("a")
    bench.sessions.forget_model(bench.model)
    bench.models.remove(bench.model)
    with pytest.raises(SessionError, match="not loaded"):
        bench.finish()


def test_a_save_gives_its_blocks_to_who_runs(tmp_path: Path):
    bench = Bench.make(tmp_path)
    bench.keep("a", tokens_of(40))
    bench.begin_save("a")
    bench.sessions.give_up_one()
    assert bench.num_used == 3  # the save's
    assert bench.sessions.give_up_one()
    assert bench.num_used == 0
    with pytest.raises(SavedSessionError, match="running requests needed the memory"):
        bench.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_load_gives_its_blocks_to_who_runs(tmp_path: Path):
    bench = Bench.make(tmp_path)
    bench.keep("a", tokens_of(40))
    bench.save("a")
    bench.sessions.remove("m", "a")
    bench.crowd_out()
    bench.begin_load("a")
    assert bench.threads.run_one(reads=True)  # it was opened
    assert bench.sessions.give_up_one()
    with pytest.raises(SavedSessionError, match="given up"):
        bench.finish()
    assert bench.pinned() == {}
    assert len(bench.cached(tokens_of(40))) == 0
    bench.check()


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_damaged_block_becomes_no_session(tmp_path: Path, is_missing: bool):
    bench = Bench.make(tmp_path)
    bench.keep("a", tokens_of(40))
    bench.save("a")
    bench.sessions.remove("m", "a")
    bench.crowd_out()
    path = sorted(tmp_path.glob("*/*.kv"))[1]
    if is_missing:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(SavedSessionError, match="a block is missing" if is_missing else "MAC of a block"):
        bench.load("a")
    assert bench.pinned() == {}
    assert len(bench.cached(tokens_of(40))) == 0
    bench.check()
    bench.keep("a", tokens_of(40))
    bench.save("a")  # makes it whole
    bench.load("a")


def test_a_disk_that_does_not_answer_is_not_waited_for(tmp_path: Path):
    bench = Bench.make(tmp_path)
    bench.keep("a", tokens_of(40))
    bench.begin_save("a")
    assert bench.sessions.tend() == PATIENCE_S
    bench.clock.now_s += PATIENCE_S
    assert bench.sessions.tend() is None
    (error,) = bench.ends
    assert "does not answer" in str(error)
    assert bench.num_used == 3, "the session's own"
    bench.threads.run()  # now it does
    assert len(bench.ends) == 1


def test_unloading_a_model_takes_its_sessions_and_transfers_along(tmp_path: Path):
    bench = Bench.make(tmp_path)
    other = Bench.make(model_id="other", other=bench)
    for each in (bench, other):
        each.keep("a", tokens_of(40))
    bench.begin_save("a")
    bench.sessions.forget_model(bench.model)
    bench.models.remove(bench.model)
    bench.crowd_out()
    bench.kv.trim()
    bench.kv.close()
    assert [status.model_id for status in bench.sessions.statuses()] == ["other"]
    with pytest.raises(SavedSessionError, match="model was unloaded"):
        bench.finish()


class SessionMachine(RuleBasedStateMachine):
    """Whatever happens, every block in use belongs to a session or a transfer, and pinned KV is whole."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench.make(num_blocks=20)
        self.contents: dict[str, NDArray[np.int32]] = {}

    @rule(
        name=st.sampled_from("abc"), parts=st.lists(st.sampled_from([3, 16, 21, 40]), min_size=1, max_size=3)
    )
    def keep(self, name: str, parts: list[int]) -> None:
        tokens = tokens_of(*parts)
        self.bench.keep(name, tokens)
        self.contents[name] = tokens

    @rule(name=st.sampled_from("abc"))
    def remove(self, name: str) -> None:
        self.bench.sessions.remove("m", name)

    @rule()
    def unpin(self) -> None:
        self.bench.sessions.give_up_one()

    @rule()
    def crowd_out(self) -> None:
        self.bench.crowd_out()

    @invariant()
    def nothing_leaks(self) -> None:
        self.bench.check()

    @invariant()
    def what_is_pinned_is_found(self) -> None:
        for name, num_tokens in self.bench.pinned().items():
            tokens = self.contents[name][:num_tokens]
            assert self.bench.cached(tokens).tolist() == tokens.tolist()


TestSessions = SessionMachine.TestCase
TestSessions.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
