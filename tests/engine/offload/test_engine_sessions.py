"""Requests leave their KV in sessions, which later ones continue; whoever runs needs it more."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from puna.engine import EngineCore, Request
from puna.engine.offload.session_status import NEEDS_PREFIX_TREE, UnknownSession
from tests.engine.offload.fake_threads import FakeThreads, PromptThreads
from tests.engine.offload.saved_sessions import load, save
from tests.engine.toy import POISON, Results, ToyModel, expected_tokens, run_all, toy_engine, toy_request

pytestmark = pytest.mark.native

PROMPT = [number % 90 for number in range(37)]


def run(engine: EngineCore, *requests: Request) -> dict[str, list[int]]:
    for request in requests:
        engine.submit(request)
    return run_all(engine).tokens


def talk(engine: EngineCore, session: str, prompt: list[int] = PROMPT, **fields: object) -> list[int]:
    """One turn; returns all tokens so far."""
    return prompt + run(engine, toy_request("turn", prompt, session=session, **fields))["turn"]


def cached_tokens(engine: EngineCore, prompt: list[int], **fields: object) -> int:
    engine.submit(toy_request("probe", prompt, 1, **fields))
    results = run_all(engine)
    assert results.tokens["probe"] == expected_tokens(prompt, 1)
    return results.last["probe"].stats.cached_tokens


def pinned(engine: EngineCore) -> dict[str, int]:
    return {status.name: status.num_tokens for status in engine.sessions.statuses() if status.pinned}


def saving_engine(directory: Path, model: ToyModel | None = None, **settings: object) -> EngineCore:
    engine = toy_engine(model, sessions_dir=str(directory), **settings)
    engine.sessions.use_threads(PromptThreads())
    return engine


def test_a_session_outlives_idle_time():
    engine = toy_engine()
    history = talk(engine, "a")
    run(engine, toy_request("other", [5] * 40))
    engine.trim_kv()
    engine.check()
    assert pinned(engine) == {"a": len(history) - 1}  # what was drawn last has no KV
    assert cached_tokens(engine, [*history, 1, 2]) == len(history) - 1
    assert cached_tokens(engine, [5] * 40) == 0


def test_without_a_session_nothing_stays():
    engine = toy_engine()
    run(engine, toy_request("a", PROMPT))
    engine.trim_kv()
    assert cached_tokens(engine, PROMPT) == 0
    assert engine.sessions.statuses() == []


def test_each_turn_replaces_the_one_before():
    engine = toy_engine()
    history = talk(engine, "a")
    longer = talk(engine, "a", [*history, 1, 2, 3])
    engine.trim_kv()
    assert pinned(engine) == {"a": len(longer) - 1}
    engine.sessions.remove("toy", "a")
    assert engine.stats().models[0].used_kv_bytes == 0
    engine.check()


def test_what_was_computed_of_a_cancelled_request_stays():
    engine = toy_engine()
    engine.submit(toy_request("turn", PROMPT, session="a"))
    for _ in range(3):
        engine.step()
    engine.cancel("turn")
    engine.check()
    assert pinned(engine) == {"a": len(PROMPT) + 2}


def test_a_request_that_fails_leaves_the_older_session():
    engine = toy_engine()
    history = talk(engine, "a")
    talk(engine, "a", [POISON])
    assert pinned(engine) == {"a": len(history) - 1}


def test_a_bad_name_is_refused():
    engine = toy_engine()
    engine.submit(toy_request("r", PROMPT, session="../a"))
    (output,) = engine.step()
    assert output.finish_reason == "error"
    assert 'session name "../a" is invalid' in output.error


def test_slots_keep_no_sessions():
    engine = toy_engine(cache_policy="slots")
    engine.submit(toy_request("r", PROMPT, session="a"))
    (output,) = engine.step()
    assert (output.finish_reason, output.error) == ("error", NEEDS_PREFIX_TREE)
    errors: list[Exception | None] = []
    engine.sessions.load("m", "a", errors.append)
    assert str(errors[0]) == NEEDS_PREFIX_TREE


def test_one_that_never_ran_leaves_it_too():
    engine = toy_engine()
    history = talk(engine, "a")
    talk(engine, "a", [1, 2, 3], max_tokens=0)
    assert pinned(engine) == {"a": len(history) - 1}


def test_the_salt_is_that_of_the_request():
    engine = toy_engine()
    history = talk(engine, "a", cache_salt="mine")
    assert cached_tokens(engine, history, cache_salt="mine") == len(history) - 1
    assert cached_tokens(engine, history) == 0


def test_of_a_shifted_context_only_its_beginning_is_kept():
    engine = toy_engine()
    talk(engine, "a", max_tokens=60, context_length=64, shift=True, num_keep=20)
    engine.trim_kv()
    assert pinned(engine) == {"a": 16}  # whole blocks that were not moved
    assert cached_tokens(engine, PROMPT) == 16


def test_running_sequences_take_what_sessions_hold():
    engine = toy_engine(num_blocks=8)
    first = talk(engine, "first")
    talk(engine, "second", PROMPT[::-1])
    assert sum(pinned(engine).values()) > 4 * 16
    tokens = run(engine, toy_request("long", [7] * 70, 30))["long"]
    assert tokens == expected_tokens([7] * 70, 30)
    assert engine.stats().models[0].num_preemptions == 0
    assert pinned(engine) == {}
    assert {status.name for status in engine.sessions.statuses()} == {"first", "second"}
    assert run(engine, toy_request("again", first, 5))["again"] == expected_tokens(first, 5)


def test_only_as_many_sessions_go_as_must():
    engine = toy_engine(num_blocks=9)
    talk(engine, "first")
    talk(engine, "second", PROMPT[::-1])
    run(engine, toy_request("short", [7] * 50, 10))
    assert list(pinned(engine)) == ["second"]


def test_a_growing_stream_takes_pins_before_it_preempts():
    engine = toy_engine(num_blocks=8)
    talk(engine, "a")  # 3 blocks
    tokens = run(engine, *(toy_request(str(n), [n] * 4, 40) for n in range(2)))  # 3 blocks each, in the end
    assert tokens["0"] == expected_tokens([0] * 4, 40)
    assert engine.stats().models[0].num_preemptions == 0
    assert pinned(engine) == {}


def test_pins_do_not_go_where_that_would_not_help():
    engine = toy_engine(num_blocks=12)
    talk(engine, "a")  # 3 blocks
    for number in range(2):  # the second has to wait for the first
        engine.submit(toy_request(str(number), [number] * 90, 40))
    for _ in range(5):
        engine.step()
    assert pinned(engine) == {"a": len(PROMPT) + 9}
    assert run_all(engine).last.keys() == {"0", "1"}


def test_unloading_the_model_drops_its_sessions():
    engine = toy_engine()
    talk(engine, "a")
    engine.unload_model("toy")
    assert engine.sessions.statuses() == []
    engine.check()


@pytest.mark.parametrize("num_prompt", [1, 16, 37, 200])
def test_a_restored_session_goes_on_as_if_nothing_had_happened(tmp_path: Path, num_prompt: int):
    prompt = (PROMPT * 6)[:num_prompt]
    engine = saving_engine(tmp_path)
    history = talk(engine, "a", prompt, cache_salt="s")
    save(engine.sessions, "toy", "a")
    engine.check()
    engine.close()

    model = ToyModel()
    engine = saving_engine(tmp_path, model)
    load(engine.sessions, "toy", "a")
    engine.check()
    longer = talk(engine, "a", [*history, 3, 4], cache_salt="s")
    assert longer == [*history, 3, 4, *expected_tokens([*history, 3, 4], 10)]
    assert model.steps[0] == [3]  # the last token of the history, and two more
    engine.close()


def test_running_sequences_go_on_while_a_session_is_written(tmp_path: Path):
    engine, threads, ends = saving_engine(tmp_path, num_blocks=8), FakeThreads(), []
    engine.sessions.use_threads(threads)
    talk(engine, "a")
    engine.sessions.save("toy", "a", ends.append)
    tokens = run(engine, toy_request("long", [7] * 100, 20))["long"]
    assert tokens == expected_tokens([7] * 100, 20)
    threads.run()
    (error,) = ends
    assert "given up" in str(error)
    engine.check()


def test_another_model_does_not_find_the_session(tmp_path: Path):
    engine = saving_engine(tmp_path)
    engine.attach_model("other", ToyModel(salt=1))
    talk(engine, "a")
    save(engine.sessions, "toy", "a")
    with pytest.raises(UnknownSession, match="session 'a' was not saved"):
        load(engine.sessions, "other", "a")
    engine.check()


class EngineMachine(RuleBasedStateMachine):
    """Sessions come and go in any order beside requests, in too little memory: no output changes."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.engine = toy_engine(num_blocks=16, sessions_dir=self.directory.name)
        self.threads = FakeThreads()
        self.engine.sessions.use_threads(self.threads)
        self.prompts: dict[str, list[int]] = {}
        self.results = Results()
        self.num_transfers = 0
        self.ends: list[Exception | None] = []
        self.ids = map(str, itertools.count())

    @rule(
        session=st.sampled_from(["a", "b", None]),
        length=st.integers(1, 90),
        salt=st.sampled_from(["", "s"]),
        max_tokens=st.integers(0, 30),
    )
    def submit(self, session: str | None, length: int, salt: str, max_tokens: int) -> None:
        request_id = next(self.ids)
        self.prompts[request_id] = (PROMPT * 3)[:length]
        request = toy_request(
            request_id, self.prompts[request_id], max_tokens, session=session, cache_salt=salt
        )
        self.engine.submit(request)

    @rule(count=st.integers(1, 20))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.results.add(self.engine.step())

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.prompts:
            self.engine.cancel(data.draw(st.sampled_from(sorted(self.prompts))))

    @rule(name=st.sampled_from("ab"))
    def remove(self, name: str) -> None:
        self.engine.sessions.remove("toy", name)

    @rule()
    def be_idle(self) -> None:
        self.engine.trim_kv()

    @rule(name=st.sampled_from("ab"), does_save=st.booleans())
    def begin_transfer(self, name: str, does_save: bool) -> None:
        sessions = self.engine.sessions
        (sessions.save if does_save else sessions.load)("toy", name, self.ends.append)
        self.num_transfers += 1

    @rule()
    def let_a_thread_work(self) -> None:
        self.threads.run_one(reads=True)

    @invariant()
    def books_are_right(self) -> None:
        self.engine.check()

    def teardown(self) -> None:
        run_all(self.engine, self.results)
        self.threads.run()
        assert len(self.ends) == self.num_transfers
        for request_id, tokens in self.results.tokens.items():
            assert tokens == expected_tokens(self.prompts[request_id], len(tokens))
        self.engine.close()
        self.engine.check()
        self.directory.cleanup()


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
