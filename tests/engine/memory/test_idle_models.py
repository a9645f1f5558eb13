"""Idle models fall asleep to make room for others, the least recently used first, and none in vain."""

from __future__ import annotations

import pytest

from puna.engine import EngineCore, EngineSettings
from puna.engine.memory.load_errors import ModelDoesNotFit
from tests.engine.toy import (
    BLOCK_BYTES,
    Results,
    ToyBackend,
    ToyClock,
    ToyModel,
    expected_tokens,
    run_all,
    toy_request,
)

pytestmark = pytest.mark.native

SIZE = 100 * BLOCK_BYTES
"""Of each model's weights."""


class Zoo:
    """Models by name, with weights of SIZE."""

    def __init__(self, names: str, memory_bytes: int, **settings: object) -> None:
        self.clock = ToyClock()
        values = {"kv_limit_bytes": 1 << 30, "memory_limit_bytes": memory_bytes, **settings}
        self.engine = EngineCore(ToyBackend(), EngineSettings(**values), self.clock)
        for name in names:
            self.load(name)

    def load(self, name: str, num_bytes: int = SIZE) -> None:
        model = ToyModel(ord(name), weight_bytes=num_bytes, clock=self.clock)
        self.engine.attach_model(name, model)
        self.clock.now_s += 1

    def use(self, name: str, num_tokens: int = 20) -> None:
        """Checks the answer of a request."""
        self.clock.now_s += 1
        prompt = [ord(name) % 50] * num_tokens
        self.engine.submit(toy_request(name, prompt, 5, model_id=name, num_draft=0))
        assert run_all(self.engine).tokens[name] == expected_tokens(prompt, 5, ord(name))

    @property
    def awake(self) -> str:
        return "".join(model.model_id for model in self.engine.stats().models if not model.is_asleep)


def test_they_do_for_one_that_is_loaded_and_wake_when_they_are_wanted():
    zoo = Zoo("ab", 2 * SIZE + 50 * BLOCK_BYTES)
    zoo.use("a")
    zoo.load("c")
    assert zoo.awake == "ac", "b was not used for longer"
    zoo.use("b")
    assert zoo.awake == "bc"
    zoo.use("a")
    assert zoo.awake == "ab"


def test_who_is_held_stays_awake_and_is_named():
    zoo = Zoo("ab", 2 * SIZE + 50 * BLOCK_BYTES)
    zoo.engine.hold_model("a", is_held=True)
    zoo.engine.hold_model("b", is_held=True)
    with pytest.raises(ModelDoesNotFit, match=r"a holds 6\.25 KiB of weights, b holds 6\.25 KiB of weights"):
        zoo.load("c")
    zoo.engine.hold_model("a", is_held=False)
    zoo.load("c")
    assert zoo.awake == "bc"


def test_nobody_does_so_for_a_model_that_is_too_large_anyhow():
    zoo = Zoo("ab", 2 * SIZE + 50 * BLOCK_BYTES)
    with pytest.raises(ModelDoesNotFit, match="needs"):
        zoo.load("c", 3 * SIZE)
    assert zoo.awake == "ab"


def test_they_do_for_the_kv_of_a_request_but_only_as_far_as_that_needs_it():
    zoo = Zoo("abc", 3 * SIZE + 20 * BLOCK_BYTES)
    zoo.use("c", 19 * 16)
    assert zoo.awake == "abc"
    zoo.use("c", 40 * 16)
    assert zoo.awake == "bc"
    zoo.engine.submit(toy_request("large", [1] * (16 * 40), 5, model_id="c", context_length=1 << 20))
    assert run_all(zoo.engine).last["large"].finish_reason == "length"


def test_they_do_when_the_memory_limit_is_lowered_but_not_the_limit_of_kv():
    zoo = Zoo("abc", 4 * SIZE)
    assert zoo.engine.set_limits(kv_limit_bytes=10 * BLOCK_BYTES) == 0
    assert zoo.awake == "abc"
    assert zoo.engine.set_limits(memory_limit_bytes=2 * SIZE) == 0
    assert zoo.awake == "bc"


def test_they_do_for_a_lease_but_not_in_vain():
    zoo = Zoo("ab", 2 * SIZE + 10 * BLOCK_BYTES)
    zoo.engine.hold_model("b", is_held=True)
    assert not zoo.engine.lease(111 * BLOCK_BYTES)
    assert zoo.engine.lease(10 * BLOCK_BYTES)
    assert zoo.awake == "ab"
    assert zoo.engine.lease(100 * BLOCK_BYTES)
    assert zoo.awake == "b"


def test_none_does_where_memory_is_reserved_for_good():
    zoo = Zoo("a", SIZE + 10 * BLOCK_BYTES, elastic=False, max_running=1, static_context=160)
    assert not zoo.engine.lease(BLOCK_BYTES)
    assert zoo.awake == "a"


def test_a_request_whose_model_cannot_wake_says_who_holds_the_memory():
    zoo = Zoo("ab", SIZE + 50 * BLOCK_BYTES)
    assert zoo.awake == "b"
    zoo.engine.hold_model("b", is_held=True)
    zoo.engine.submit(toy_request("r", [1], 5, model_id="a"))
    results = Results()
    results.add(zoo.engine.step())
    assert "b holds 6.25 KiB of weights" in str(results.last["r"].error)
