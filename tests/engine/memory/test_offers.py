"""What giving up memory would cost an engine is said before, and is what it then costs."""

from __future__ import annotations

import pytest

from puna.engine import EngineCore, EngineSettings
from puna.engine.memory.offers import Level, Short
from puna.kv.limits import NOTHING, Limits, total
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

SIZE = 50 * BLOCK_BYTES
"""Of each model's weights."""
LATER = float("inf")


class Office:
    """Models by name, each with weights, under limits that are part of a whole twice as large."""

    def __init__(self, names: str, num_blocks: int, **guaranteed: int) -> None:
        self.clock = ToyClock()
        self.limits = Limits(1 << 30, num_blocks * BLOCK_BYTES)
        self.engine = EngineCore(
            ToyBackend(), EngineSettings(kv_limit_bytes=0, memory_limit_bytes=0), self.clock
        )
        self.use_limits(self.limits)
        for name in names:
            model = ToyModel(ord(name), weight_bytes=SIZE, clock=self.clock, context_length=10_000)
            self.engine.attach_model(name, model, guaranteed_bytes=guaranteed.get(name, 0) * BLOCK_BYTES)
            self.clock.now_s += 1
        self.sharing = self.engine.sharing

    def use_limits(self, limits: Limits, **fields: Limits) -> None:
        self.engine.set_limits(
            limits.kv_bytes, limits.memory_bytes, whole=self.limits + self.limits, **fields
        )

    def begin(self, name: str, num_blocks: int, count: int = 5, **fields: object) -> list[int]:
        """The answer that must come."""
        prompt = [ord(name[-1]) % 50] * (num_blocks * 16 - 8)
        request = toy_request(name, prompt, count, model_id=name[0], num_draft=0, **fields)
        self.engine.submit(request)
        return expected_tokens(prompt, count, ord(name[0]))

    def blocks_by_level(self, num_blocks: int, order_s: float = LATER) -> dict[str, int]:
        asked = Limits(0, num_blocks * BLOCK_BYTES)
        offers = self.sharing.offers(asked, order_s)
        assert asked.covers(total(offer.gives for offer in offers))
        return {offer.level.name: offer.gives.memory_bytes // BLOCK_BYTES for offer in offers}

    def give(self, num_blocks: int, order_s: float = LATER) -> int:
        """Blocks that were given."""
        before = self.engine.memory.budget.limits
        given = self.sharing.give_up(Limits(0, num_blocks * BLOCK_BYTES), order_s)
        assert self.engine.memory.budget.limits == before - given
        assert self.engine.memory.budget.limits.covers(self.engine.memory.budget.taken)
        self.engine.check()
        return given.memory_bytes // BLOCK_BYTES

    @property
    def awake(self) -> str:
        return "".join(model.model_id for model in self.engine.stats().models if not model.is_asleep)


def test_what_there_is_is_offered_by_level_and_given_in_that_order():
    office = Office("ab", 200)
    office.begin("a", 10)
    office.begin("b", 20, session="s")
    run_all(office.engine)
    expected = {"FREE": 70, "CACHED": 10, "SESSIONS": 20, "IDLE_MODELS": 100}
    assert office.blocks_by_level(1000) == expected
    assert office.blocks_by_level(75) == {"FREE": 70, "CACHED": 5}
    assert office.blocks_by_level(1000) == expected, "nothing is given up by asking"
    assert office.give(75) == 75
    assert office.blocks_by_level(1000) == {"CACHED": 5, "SESSIONS": 20, "IDLE_MODELS": 100}
    assert office.give(26) == 26
    assert office.awake == "b", "it was used last"
    assert office.give(1000) == 99
    assert office.engine.memory.budget.limits.memory_bytes == 0


def test_what_is_guaranteed_is_not_offered():
    office = Office("a", 100, a=30)
    office.engine.hold_model("a", is_held=True)
    assert office.blocks_by_level(1000) == {"FREE": 20}
    office.begin("a", 10)
    run_all(office.engine)
    assert office.blocks_by_level(1000) == {"FREE": 20}
    assert office.give(1000) == 20


def test_who_came_later_makes_way_and_goes_on_when_there_is_memory_again():
    office, results = Office("a", 100), Results()
    early = office.begin("a1", 10, 100)
    results.add(office.engine.step())
    office.clock.now_s += 1
    order_s = office.clock.now_s
    office.clock.now_s += 1
    late = office.begin("a2", 20, 20)
    for _ in range(50):
        results.add(office.engine.step())
    levels = office.blocks_by_level(1000, order_s)
    assert levels["SEQUENCES"] >= 10
    assert levels["ENDING"] >= 10
    assert "SEQUENCES" not in office.blocks_by_level(1000, LATER)
    given = office.give(1000, order_s)
    assert given >= 100 - 50 - 21
    run = office.engine.stats().models[0]
    assert (run.num_running, run.num_waiting) == (1, 1)
    office.use_limits(office.limits)
    run_all(office.engine, results)
    assert (results.tokens["a1"], results.tokens["a2"]) == (early, late)


def test_who_lacks_memory_says_so_and_gives_none_to_those_who_came_later():
    office = Office("a", 60)
    office.clock.now_s = 7.0
    expected = office.begin("a", 30)
    results = Results()
    for _ in range(5):
        results.add(office.engine.step())
    short = office.sharing.shortage
    assert short is not None
    assert short.order_s == 7
    assert 20 * BLOCK_BYTES <= short.lack.memory_bytes <= 22 * BLOCK_BYTES
    assert short.lack.kv_bytes == 0
    assert set(office.blocks_by_level(1000, 8.0)) == {"ENDING"}
    office.use_limits(office.limits + short.lack)
    run_all(office.engine, results)
    assert results.tokens["a"] == expected
    assert office.sharing.shortage is None


def test_a_model_without_room_is_loaded_asleep_and_its_request_waits_for_memory():
    office = Office("a", 40)
    assert office.awake == ""
    expected = office.begin("a", 3)
    assert office.sharing.shortage == Short(Limits(0, 11 * BLOCK_BYTES), office.clock.now_s)
    assert not office.engine.has_work
    office.use_limits(office.limits.plus(20 * BLOCK_BYTES))
    assert run_all(office.engine).tokens["a"] == expected


@pytest.mark.parametrize("end", ["cancel", "unload", "refuse"])
def test_who_waits_for_a_model_to_wake_can_be_ended(end: str):
    office = Office("a", 40)
    office.begin("a", 3)
    if end == "cancel":
        office.engine.cancel("a")
    elif end == "unload":
        office.engine.unload_model("a")
    else:
        office.use_limits(office.limits, reachable=Limits(0, 10 * BLOCK_BYTES))
    last = run_all(office.engine).last["a"]
    assert last.finish_reason == ("cancelled" if end == "cancel" else "error")
    text = {"cancel": "None", "unload": "the model was unloaded", "refuse": "a needs 3"}[end]
    assert str(last.error).startswith(text)
    assert office.sharing.shortage is None


def test_a_request_that_others_cannot_make_room_for_ends_with_an_error():
    office, results = Office("a", 60), Results()
    office.begin("a", 30)
    for _ in range(5):
        results.add(office.engine.step())
    office.use_limits(office.limits, reachable=Limits(0, 5 * BLOCK_BYTES))
    run_all(office.engine, results)
    assert "memory" in str(results.last["a"].error)


def test_an_engine_that_is_alone_lacks_nothing():
    office = Office("a", 60)
    office.engine.set_limits(office.limits.kv_bytes, office.limits.memory_bytes)
    office.begin("a", 30)
    assert run_all(office.engine).last["a"].finish_reason == "error"
    assert office.sharing.shortage is None


def test_memory_that_is_reserved_is_not_offered():
    settings = EngineSettings(
        kv_limit_bytes=100 * BLOCK_BYTES, elastic=False, max_running=2, static_context=160
    )
    engine = EngineCore(ToyBackend(), settings)
    engine.attach_model("toy", ToyModel())
    offers = engine.sharing.offers(Limits(1 << 30, 0), LATER)
    assert [(offer.level, offer.gives) for offer in offers] == [(Level.FREE, Limits(80 * BLOCK_BYTES, 0))]
    assert engine.sharing.give_up(NOTHING, LATER) == NOTHING
