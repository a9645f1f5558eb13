"""Models with recurrent layers: what is computed again, and what never is."""

from __future__ import annotations

from random import Random

import pytest

from puna.engine import EngineCore
from puna.engine.caching.state_policy import StatePolicy
from tests.engine.failures.test_faults import Faults
from tests.engine.sequences.test_text import TABLE
from tests.engine.toy import (
    BLOCK_BYTES,
    STATE_BYTES,
    Results,
    ToyModel,
    expected_tokens,
    run_all,
    toy_bytes_for,
    toy_engine,
    toy_request,
)

pytestmark = pytest.mark.native


def text(seed: int, count: int) -> list[int]:
    return [(seed * 31 + i * i * 7 + i) % 90 for i in range(count)]


def hybrid(**fields: object) -> ToyModel:
    return ToyModel(context_length=8000, state_bytes=STATE_BYTES, **fields)


def computed(model: ToyModel) -> int:
    """Tokens, since the last question."""
    total = sum(map(sum, model.steps))
    model.steps.clear()
    return total


def ask(engine: EngineCore, name: str, prompt: list[int], count: int = 5, **fields: object) -> None:
    engine.submit(toy_request(name, prompt, count, **fields))
    results = run_all(engine)
    assert results.tokens[name] == expected_tokens(prompt, count, has_state=True), name


def test_a_turn_that_parts_where_the_reply_begins_computes_what_is_new():
    model = hybrid()
    engine = toy_engine(model)
    turn = text(1, 707)
    ask(engine, "first", [*turn, 90, 91, 92], 20, boundaries=[707])
    assert computed(model) == 710 + 19
    turn += [90, 91, *text(2, 333)]  # the reply in other words
    ask(engine, "second", [*turn, 90, 91, 92], 20, boundaries=[len(turn)])
    assert computed(model) == 335 + 3 + 19
    again = [*turn, *text(3, 50)]
    ask(engine, "third", again, boundaries=[len(turn)])
    assert computed(model) == 50 + 4


def test_a_conversation_shares_the_systems_part_with_others():
    model = hybrid()
    engine = toy_engine(model)
    system = text(1, 421)
    for name in ("first", "second"):
        ask(engine, name, [*system, *text(len(name), 100)], 1, boundaries=[421, 500])
    assert computed(model) == 421 + 100 + 100


def test_what_was_seen_to_part_is_shared_by_the_third():
    model = hybrid()
    engine = toy_engine(model)
    common = text(1, 1001)
    for seed, num_computed in ((1, 1100), (2, 1100 - 512), (3, 99)):
        ask(engine, str(seed), [*common, *[80 + seed] * 99], 1)
        assert computed(model) == num_computed


@pytest.mark.parametrize("length", [64, 300, 1111])
def test_equal_prompts_that_come_together_are_computed_once(length):
    model = hybrid()
    engine = toy_engine(model)
    prompt = text(5, length)
    for name in "abcd":
        engine.submit(toy_request(name, prompt, 4))
    results = run_all(engine)
    assert all(results.tokens[name] == expected_tokens(prompt, 4, has_state=True) for name in "abcd")
    assert computed(model) == length - 1 + 4 * 4


def test_prompts_that_come_together_compute_what_they_share_once():
    model = hybrid()
    engine = toy_engine(model)
    shared = text(5, 777)
    prompts = {name: [*shared, *text(ord(name), 100 + ord(name))] for name in "abc"}
    for name, prompt in prompts.items():
        engine.submit(toy_request(name, prompt, 4))
    results = run_all(engine)
    for name, prompt in prompts.items():
        assert results.tokens[name] == expected_tokens(prompt, 4, has_state=True)
    assert computed(model) == 777 + sum(len(prompt) - 777 + 3 for prompt in prompts.values())


def test_what_a_cancelled_request_has_computed_is_found():
    model = hybrid()
    engine = toy_engine(model)
    engine.submit(toy_request("a", text(1, 600)))
    engine.step()
    engine.step()
    engine.cancel("a")
    assert computed(model) == 512
    ask(engine, "b", text(1, 600), 1)
    assert computed(model) == 600 - 512


def test_one_who_waits_for_another_goes_on_alone():
    model = hybrid()
    engine = toy_engine(model)
    prompt = text(1, 600)
    engine.submit(toy_request("a", prompt))
    engine.submit(toy_request("b", prompt, 3))
    engine.step()
    engine.cancel("a")
    results = run_all(engine)
    assert results.tokens["b"] == expected_tokens(prompt, 3, has_state=True)
    assert computed(model) == 600 + 2


def test_a_full_context_ends_with_length():
    engine = toy_engine(ToyModel(context_length=64, state_bytes=STATE_BYTES))
    engine.submit(toy_request("a", text(1, 60), 100, shift=True))
    assert run_all(engine).last["a"].finish_reason == "length"


def test_a_model_of_recurrent_layers_only():
    model = hybrid(windows=())
    engine = toy_engine(model, num_blocks=60)
    for name, prompt in (("a", text(1, 300)), ("b", [*text(1, 250), *text(2, 40)]), ("c", text(1, 300))):
        engine.submit(toy_request(name, prompt, 5, boundaries=[250]))
        wanted = expected_tokens(prompt, 5, windows=(), has_state=True)
        assert run_all(engine).tokens[name] == wanted
    assert computed(model) == 300 + 40 + 50 + 3 * 4


def test_in_slots_only_what_goes_on_word_for_word_is_continued():
    model = hybrid()
    engine = toy_engine(model, cache_policy="slots", max_running=2)
    talk = text(1, 297)
    ask(engine, "first", talk)
    talk += [*expected_tokens(talk, 5, has_state=True), 1, 2, 3]
    computed(model)
    ask(engine, "second", talk)
    assert computed(model) == 4 + 4
    ask(engine, "third", [*talk[:200], 5])
    assert computed(model) == 201 + 4


def test_memory_that_is_reserved_for_good():
    model = hybrid()
    engine = toy_engine(model, elastic=False, max_running=2, static_context=400)
    for name in "abc":
        ask(engine, name, [*text(1, 200), *text(ord(name), 50)], boundaries=[200])
    assert computed(model) == 200 + 3 * (50 + 4)


def test_a_stop_string_within_drafts_ends_the_reply_and_its_state():
    model = hybrid(is_habitual=True, step_s=0.05)
    engine = toy_engine(model)
    engine.set_token_table("toy", TABLE)
    prompt = [7, 0, 1, 2, 3, 4, 5] * 9
    answer = expected_tokens(prompt, 60, is_habitual=True, has_state=True)
    for name, stop, reason in (("a", "?", "length"), ("b", "b😀a\nab", "stop"), ("c", "?", "length")):
        engine.submit(toy_request(name, prompt, 60, stop=[stop], boundaries=[50]))
        results = run_all(engine)
        last, tokens = results.last[name], results.tokens[name]
        assert last.finish_reason == reason
        assert last.stats.accepted_tokens > 0
        assert tokens == answer[: len(tokens)]


def test_no_more_is_drafted_than_can_be_replayed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("puna.engine.speculation.drafting.MOST_REPLAYED", 5)
    model = hybrid(is_habitual=True, step_s=0.5)
    engine = toy_engine(model)
    prompts = {name: [7, seed, 1, 2, 3, 4, 5] * 9 for seed, name in enumerate("abc")}
    for name, prompt in prompts.items():
        engine.submit(toy_request(name, prompt, 60))
    results = run_all(engine)
    for name, prompt in prompts.items():
        assert results.tokens[name] == expected_tokens(prompt, 60, is_habitual=True, has_state=True)
    assert max(sum(step) - len(step) for step in model.steps if max(step) < 16) == 5


@pytest.mark.parametrize("length", [81, 97, 113])
def test_drafts_behind_the_place_for_a_snapshot(length: int):
    model = hybrid(is_habitual=True, step_s=0.05)
    engine = toy_engine(model, prefill_tokens=16)
    prompt = [7, 0, 1, 2, 3, 4, 5] * 9
    answer = expected_tokens(prompt, 60, is_habitual=True, has_state=True)
    engine.submit(toy_request("a", prompt, 60))
    results = Results()
    sequence = engine._requests.sequences["a"]
    while sequence.num_tokens < length:
        sequence.most_drafts = min(16, length - sequence.num_tokens - 1)
        results.add(engine.step())
    sequence.most_drafts = 16
    engine._scheduler._lifecycle.preempt(engine._models["toy"], sequence)
    engine.trim_kv()
    engine.submit(toy_request("b", [*prompt, *answer[: length - len(prompt)], *[9] * 30], 4))
    run_all(engine, results)
    assert results.tokens["a"] == answer


def test_a_session_whose_state_is_read_makes_way_for_who_reads_it():
    model = hybrid()
    engine = toy_engine(model)
    engine.set_limits(toy_bytes_for(model.info, 340))
    talk = text(1, 300)
    ask(engine, "a", talk, session="s")
    ask(engine, "b", [*talk, *expected_tokens(talk, 5, has_state=True), 1], context_length=340)


def test_a_draft_model_with_recurrent_layers_is_refused():
    engine = toy_engine(ToyModel())
    engine.attach_model("draft", hybrid())
    engine.submit(toy_request("a", [1, 2], draft_model_id="draft"))
    assert "recurrent layers" in run_all(engine).last["a"].error


@pytest.mark.parametrize("name", ["admit", "catch_up", "computed", "release"])
def test_a_fault_ends_one_request_at_most(name: str, monkeypatch: pytest.MonkeyPatch):
    faults = Faults({2, 5, 9}, is_behind=False)
    engine = toy_engine(hybrid())
    with monkeypatch.context() as patch:
        patch.setattr(StatePolicy, name, faults.around(getattr(StatePolicy, name)))
        for n in range(12):
            engine.submit(toy_request(str(n), text(n % 3, 300), 3, boundaries=[200]))
        last = run_all(engine).last.values()
    assert faults.num_raised == 3
    assert [end.finish_reason for end in last].count("error") <= 3
    ask(engine, "later", text(1, 300))
    engine.close()


class Agents:
    """Conversations that grow and part, several requests at a time, in memory that is too little for them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.windows = self.random.choice([(None,), (None, 20), (40, 1)])
        self.model = hybrid(windows=self.windows, is_habitual=seed % 2 == 0, step_s=0.05 * (seed % 4 == 0))
        self.engine = toy_engine(
            self.model,
            num_blocks=self.random.choice([120, 200, 2000]),
            prefill_tokens=self.random.choice([48, 256]),
            max_running=self.random.choice([None, None, 2]),
        )
        self.turns = [text(self.random.randrange(4), 50)]
        self.wanted: dict[str, list[int]] = {}
        self.results = Results()
        self.cancelled: set[str] = set()

    def ask(self) -> None:
        random = self.random
        before = random.choice(self.turns[-6:])
        prompt = (before + text(random.randrange(5), random.choice([1, 15, 16, 90, 400])))[:1200]
        self.turns.append(prompt[: random.choice([800, 1150])])
        boundaries = sorted(
            {min(len(before), len(prompt)), random.randrange(1, len(prompt)), len(prompt) - 1, len(prompt)}
        )
        count = random.choice([1, 1, 20, 60])
        for _ in range(random.choice([1, 1, 3])):
            name = str(len(self.wanted))
            self.wanted[name] = expected_tokens(
                prompt, count, is_habitual=self.model.is_habitual, windows=self.windows, has_state=True
            )
            self.engine.submit(
                toy_request(
                    name,
                    prompt,
                    count,
                    boundaries=random.choice([[], boundaries]),
                    cache_prompt=random.random() < 0.9,
                    cache_salt=random.choice(["", "", "", "tenant"]),
                    priority=random.choice([0, 0, 1]),
                    num_draft=random.choice([0, None]),
                )
            )

    def act(self) -> None:
        random = self.random
        if random.random() < 0.25:
            self.ask()
        if random.random() < 0.05 and (unfinished := [*(self.wanted.keys() - self.results.last.keys())]):
            self.cancelled.add(name := random.choice(sorted(unfinished)))
            self.engine.cancel(name)
        if random.random() < 0.01:
            self.engine.trim_kv()
        if random.random() < 0.05:
            self.engine.set_limits(random.choice([110, 150, 2000]) * BLOCK_BYTES)
        self.results.add(self.engine.step())
        self.engine.check()

    def finish(self) -> None:
        self.engine.set_limits(2000 * BLOCK_BYTES)
        run_all(self.engine, self.results)
        for name, wanted in self.wanted.items():
            tokens, last = self.results.tokens[name], self.results.last[name]
            assert tokens == wanted[: len(tokens)]
            assert name in self.cancelled or tokens == wanted, last
        self.engine.trim_kv()
        assert self.engine.stats().models[0].committed_kv_bytes == 0
        self.engine.close()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_parts_wherever_gets_its_own_reply(seed: int):
    agents = Agents(seed)
    for _ in range(120):
        agents.act()
    agents.finish()
