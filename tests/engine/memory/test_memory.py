"""Limits, guarantees, leases and weights that change with requests at work: nothing is lost, and nobody takes
what is guaranteed to another."""

from __future__ import annotations

import pytest

from puna.backends.base import KvReservation, ModelLoadError
from puna.engine import EngineCore, EngineSettings
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.kv import BLOCK_TOKENS
from tests.engine.toy import (
    BLOCK_BYTES,
    Results,
    ToyBackend,
    ToyModel,
    expected_tokens,
    run_all,
    toy_engine,
    toy_request,
)
from tests.engine.toy_memory import ToyDeviceMemory, ToyMemory

pytestmark = pytest.mark.native


def two_models(num_blocks: int, guaranteed: tuple[int, int] = (0, 0), **settings: object) -> EngineCore:
    """Models "a" and "b", salted 1 and 2. guaranteed: in blocks."""
    engine = EngineCore(ToyBackend(), EngineSettings(kv_limit_bytes=num_blocks * BLOCK_BYTES, **settings))
    for salt, (name, num_guaranteed) in enumerate(zip("ab", guaranteed, strict=True), start=1):
        engine.attach_model(name, ToyModel(salt), guaranteed_bytes=num_guaranteed * BLOCK_BYTES)
        engine.hold_model(name, is_held=True)
    return engine


def steps(engine: EngineCore, count: int, results: Results | None = None) -> Results:
    results = results or Results()
    for _ in range(count):
        results.add(engine.step())
        engine.check()
    return results


def blocks(engine: EngineCore, kind: str) -> list[int]:
    """By model, in order: blocks that are used, cached or committed."""
    return [getattr(model, f"{kind}_kv_bytes") // BLOCK_BYTES for model in engine.stats().models]


def compute(engine: EngineCore, model_id: str, num_blocks: int, token: int = 1) -> None:
    """Leaves so many cached blocks."""
    run_all(engine, request(engine, model_id, num_blocks, token))


def request(engine: EngineCore, model_id: str, num_blocks: int, token: int = 1, name: str = "x") -> Results:
    prompt = [token] * (16 * num_blocks - 1)
    engine.submit(toy_request(f"{name}{token}", prompt, 1, model_id=model_id, num_draft=0))
    return Results()


# Limits.


def test_a_lower_limit_takes_what_is_cached_at_once_the_oldest_first():
    engine = two_models(20)
    compute(engine, "a", 6)
    compute(engine, "b", 6)
    compute(engine, "a", 4, token=2)
    assert blocks(engine, "cached") == [10, 6]
    assert engine.set_limits(kv_limit_bytes=8 * BLOCK_BYTES) == 0
    assert blocks(engine, "committed") == blocks(engine, "cached") == [4, 4]
    engine.check()


def test_running_sequences_go_on_under_a_lower_limit_and_what_they_free_is_gone():
    engine = toy_engine(num_blocks=40)
    prompts = [[i] * 33 for i in range(8)]
    for i, prompt in enumerate(prompts):
        engine.submit(toy_request(str(i), prompt, 20 + 10 * i, num_draft=0))
    results = steps(engine, 3)
    before = engine.stats().models[0].committed_kv_bytes
    assert before > 20 * BLOCK_BYTES
    excess = engine.set_limits(kv_limit_bytes=12 * BLOCK_BYTES)
    assert excess == before - 12 * BLOCK_BYTES, "what they hold is not taken, but told"
    committed = [before]
    while engine.has_work:
        steps(engine, 1, results)
        committed.append(engine.stats().models[0].committed_kv_bytes)
        assert committed[-1] <= max(committed[-2], 12 * BLOCK_BYTES), "nothing more above the limit"
    assert min(committed) <= 12 * BLOCK_BYTES
    assert engine.stats().models[0].num_preemptions > 0, "the first could grow"
    for i, prompt in enumerate(prompts):
        assert results.tokens[str(i)] == expected_tokens(prompt, 20 + 10 * i)


def test_newcomers_wait_until_the_limit_is_kept():
    engine = toy_engine(num_blocks=20)
    engine.submit(toy_request("old", [1] * 100, 60, num_draft=0))
    steps(engine, 3)
    assert engine.set_limits(kv_limit_bytes=10 * BLOCK_BYTES) == 0
    assert engine.set_limits(kv_limit_bytes=5 * BLOCK_BYTES) > 0
    engine.submit(toy_request("new", [2], 5, num_draft=0))
    results = steps(engine, 3)
    assert (engine.stats().models[0].num_running, engine.stats().models[0].num_waiting) == (1, 1)
    run_all(engine, results)
    assert results.tokens["new"] == expected_tokens([2], 5)


def test_who_can_never_fit_again_is_told_so_and_the_others_go_on():
    engine = two_models(30)
    engine.submit(toy_request("large", [1] * 100, 200, model_id="a", num_draft=0))
    engine.submit(toy_request("small", [2] * 20, 60, model_id="b", num_draft=0))
    engine.submit(toy_request("waits", [3] * 400, 5, model_id="b", num_draft=0, priority=-1))
    results = steps(engine, 3)
    engine.set_limits(kv_limit_bytes=6 * BLOCK_BYTES)
    run_all(engine, results)
    assert results.last["large"].finish_reason == results.last["waits"].finish_reason == "error"
    assert results.last["large"].error == "the request needs 512 B of KV memory, the limits leave it 384 B"
    assert results.last["waits"].error == "the request needs 1.56 KiB of KV memory, the limits leave it 384 B"
    assert results.tokens["large"] == expected_tokens([1] * 100, 200, 1)[: len(results.tokens["large"])]
    assert results.tokens["small"] == expected_tokens([2] * 20, 60, 2)


def test_memory_that_will_come_back_is_waited_for():
    engine = two_models(12)
    moved = engine._models["b"].kv.new_table()  # as for a thread that reads a file
    assert moved.grow(6 * BLOCK_TOKENS)
    engine.submit(toy_request("r", [1] * 60, 80, model_id="a", num_draft=0))
    results = Results()
    for _ in range(100):
        results.add(engine.step())
    assert "r" not in results.last
    assert len(results.tokens["r"]) < 80
    moved.release()
    run_all(engine, results)
    assert results.tokens["r"] == expected_tokens([1] * 60, 80, 1)


def test_without_any_memory_requests_fail_and_with_it_they_work_again():
    engine = toy_engine(num_blocks=10)
    engine.submit(toy_request("running", [1] * 20, 50))
    results = steps(engine, 2)
    engine.set_limits(kv_limit_bytes=0)
    engine.submit(toy_request("late", [1], 5))
    run_all(engine, results)
    assert "of KV memory" in results.last["running"].error
    assert "the limits leave it 0 B" in results.last["late"].error
    assert engine.set_limits(kv_limit_bytes=10 * BLOCK_BYTES) == 0
    engine.submit(toy_request("again", [1] * 20, 50))
    assert run_all(engine).tokens["again"] == expected_tokens([1] * 20, 50)


def test_a_higher_limit_is_usable_at_once_beyond_what_there_was_at_the_load():
    engine = toy_engine(num_blocks=10)
    for i in range(4):
        engine.submit(toy_request(str(i), [i] * 100, 5))
    steps(engine, 2)
    assert (engine.stats().models[0].num_running, engine.stats().models[0].num_waiting) == (1, 3)
    engine.set_limits(kv_limit_bytes=100 * BLOCK_BYTES)
    steps(engine, 1)
    assert engine.stats().models[0].num_running == 4
    engine.submit(toy_request("long", [5] * 900, 5, priority=1))
    results = run_all(engine)
    assert results.tokens["long"] == expected_tokens([5] * 900, 5)


def test_limits_that_are_not_named_stay():
    engine = two_models(20, memory_limit_bytes=1000)
    engine.set_limits(memory_limit_bytes=500)
    assert (engine.stats().kv_limit_bytes, engine.stats().memory_limit_bytes) == (20 * BLOCK_BYTES, 500)
    engine.set_limits(kv_limit_bytes=300)
    assert (engine.stats().kv_limit_bytes, engine.stats().memory_limit_bytes) == (300, 500)


def test_pinned_sessions_go_when_the_limit_is_lowered():
    engine = toy_engine(num_blocks=20)
    engine.submit(toy_request("r", [1] * 100, 5, session="s"))
    run_all(engine)
    assert engine.set_limits(kv_limit_bytes=2 * BLOCK_BYTES) == 0
    assert not engine.sessions.statuses()[0].pinned
    engine.check()


def test_idle_slots_go_when_the_limit_is_lowered():
    engine = toy_engine(num_blocks=20, cache_policy="slots")
    engine.submit(toy_request("r", [1] * 100, 5))
    run_all(engine)
    assert blocks(engine, "used") == [7]
    assert engine.set_limits(kv_limit_bytes=2 * BLOCK_BYTES) == 0
    assert blocks(engine, "used") == [0]
    assert blocks(engine, "committed") == [2], "spare, and within the limit"


# Guarantees.


def test_the_cache_within_a_guarantee_is_safe_from_others():
    engine = two_models(20, (6, 0))
    compute(engine, "a", 9)
    compute(engine, "b", 8)
    assert blocks(engine, "cached") == [9, 8]
    compute(engine, "b", 12, token=2)
    assert blocks(engine, "cached")[0] == 6
    compute(engine, "b", 14, token=3)
    assert blocks(engine, "cached") == [6, 14], "b can have all but that"
    engine.submit(toy_request("too long", [1] * 16 * 15, 5, model_id="b"))
    assert (
        "the limits leave it 896 B: 384 B are guaranteed to other models"
        in run_all(engine).last["too long"].error
    )


def test_what_a_model_is_sure_of_is_there_though_others_want_it():
    engine = two_models(20, (0, 6))
    for i in range(20):
        engine.submit(toy_request(f"a{i}", [i] * 50, 40, model_id="a", num_draft=0))
    results = steps(engine, 3)
    assert engine.stats().models[0].num_waiting > 0
    assert blocks(engine, "committed")[0] <= 14
    engine.submit(toy_request("b", [1] * 70, 10, model_id="b", num_draft=0))
    before = engine.stats().models[0].num_preemptions
    while "b" not in results.last:
        steps(engine, 1, results)
    assert engine.stats().models[0].num_preemptions == before, "its place was free"
    run_all(engine, results)
    assert results.tokens["b"] == expected_tokens([1] * 70, 10, 2)


def test_a_model_gets_what_is_guaranteed_from_earlier_requests_that_hold_more_than_theirs():
    engine = EngineCore(ToyBackend(), EngineSettings(kv_limit_bytes=20 * BLOCK_BYTES))
    engine.attach_model("a", ToyModel(1))
    for i in range(2):
        engine.submit(toy_request(f"a{i}", [i] * 140, 20, model_id="a", num_draft=0))
    results = steps(engine, 3)
    assert blocks(engine, "used") == [18]
    engine.attach_model("b", ToyModel(2), guaranteed_bytes=8 * BLOCK_BYTES)
    engine.submit(toy_request("b", [1] * 100, 10, model_id="b", num_draft=0))
    steps(engine, 1, results)
    assert engine.stats().models[0].num_preemptions == 1
    run_all(engine, results)
    assert results.tokens["b"] == expected_tokens([1] * 100, 10, 2)
    for i in range(2):
        assert results.tokens[f"a{i}"] == expected_tokens([i] * 140, 20, 1)


def test_guarantees_must_fit_the_limit():
    engine = two_models(20, (6, 8))
    late = ToyModel(3)
    text = (
        "c needs 448 B of KV memory, the limit is 1.25 KiB: "
        "a holds 384 B of KV that is guaranteed to it, b holds 512 B of KV that is guaranteed to it"
    )
    with pytest.raises(ModelDoesNotFit, match=text):
        engine.attach_model("c", late, guaranteed_bytes=7 * BLOCK_BYTES)
    assert late.closed
    engine.attach_model("c", ToyModel(3), guaranteed_bytes=6 * BLOCK_BYTES)
    assert [model.guaranteed_kv_bytes // BLOCK_BYTES for model in engine.stats().models] == [6, 8, 6]
    compute(engine, "c", 6)
    engine.set_limits(kv_limit_bytes=10 * BLOCK_BYTES)
    for name in "abc":
        compute(engine, name, 3, token=5)
    assert sum(blocks(engine, "committed")) <= 10


# Leases.


def test_a_lease_takes_what_is_cached_and_nothing_that_is_in_use():
    engine = two_models(20, (4, 0))
    compute(engine, "a", 5)
    compute(engine, "b", 6)
    engine.submit(toy_request("r", [7] * 79, 1, model_id="b", num_draft=0))
    steps(engine, 0)
    assert not engine.lease(17 * BLOCK_BYTES)
    assert engine.lease(16 * BLOCK_BYTES)
    assert engine.stats().leased_bytes == 16 * BLOCK_BYTES
    assert blocks(engine, "cached") == [4, 0]
    engine.check()
    assert "of KV memory" in run_all(engine).last["r"].error, "it would have to wait for the lease's end"
    engine.end_lease(10 * BLOCK_BYTES)
    engine.submit(toy_request("again", [7] * 79, 1, model_id="b"))
    assert run_all(engine).last["again"].finish_reason == "length"


def test_a_lease_shortens_no_context_and_who_does_not_fit_beside_it_is_told():
    engine = two_models(20)
    assert engine.lease(18 * BLOCK_BYTES)
    engine.submit(toy_request("r", [5] * 20, 40, model_id="a", num_draft=0, shift=True))
    engine.submit(toy_request("long", [6] * 40, 1, model_id="b"))
    results = run_all(engine)
    reason = "needs 192 B of KV memory, the limits leave it 128 B: 1.12 KiB are leased to others"
    assert results.last["r"].error == f"the request {reason}"
    assert results.last["long"].error == f"the prompt of 40 tokens {reason}"
    assert results.tokens["r"] == expected_tokens([5] * 20, 40, 1)[: len(results.tokens["r"])]
    engine.submit(toy_request("r", [5] * 20, 40, model_id="a", num_draft=0, shift=True))
    steps(engine, 2)
    engine.end_lease(18 * BLOCK_BYTES)
    assert run_all(engine).last["r"].finish_reason == "length"


def test_running_requests_are_not_touched_by_a_lease_and_go_on_beside_it():
    engine = toy_engine(num_blocks=20)
    engine.submit(toy_request("r", [1] * 100, 40, num_draft=0))
    results = steps(engine, 3)
    used = blocks(engine, "used")[0]
    assert not engine.lease((20 - used + 1) * BLOCK_BYTES)
    assert engine.lease((20 - used - 3) * BLOCK_BYTES)
    run_all(engine, results)
    assert results.tokens["r"] == expected_tokens([1] * 100, 40)


def test_a_lease_that_is_held_counts_whatever_the_limit_is():
    engine = toy_engine(num_blocks=10)
    compute(engine, "toy", 6)
    assert engine.lease(12 * BLOCK_BYTES, is_held=True)
    assert blocks(engine, "committed") == [0]
    assert engine.set_limits() == 2 * BLOCK_BYTES
    assert not engine.lease(1)
    engine.end_lease(12 * BLOCK_BYTES)
    compute(engine, "toy", 6)


# Weights.


def test_weights_and_kv_share_the_memory_limit():
    engine = two_models(20, memory_limit_bytes=3000)
    compute(engine, "a", 10)
    compute(engine, "b", 5)
    engine.attach_model("c", ToyModel(3, weight_bytes=3000 - 12 * BLOCK_BYTES))
    assert sum(blocks(engine, "committed")) == 12, "what is cached made room"
    engine.hold_model("c", is_held=True)
    text = r"d needs 832 B \(weights 768 B, KV at least 64 B\), the memory limit is .*: .*c holds 2.18 KiB"
    with pytest.raises(ModelDoesNotFit, match=text):
        engine.attach_model("d", ToyModel(4, weight_bytes=12 * BLOCK_BYTES))
    engine.unload_model("c")
    engine.attach_model("d", ToyModel(4, weight_bytes=12 * BLOCK_BYTES))
    assert engine.stats().models[-1].weight_bytes == 12 * BLOCK_BYTES


def test_a_model_larger_than_memory_runs_with_as_many_experts_as_leave_room_for_kv(caplog):
    engine = toy_engine(num_blocks=100, memory_limit_bytes=100 * BLOCK_BYTES)
    engine.unload_model("toy")
    large = {"weight_bytes": 300 * BLOCK_BYTES, "idle_weight_bytes": 260 * BLOCK_BYTES}
    engine.attach_model("large", ToyModel(5, **large))
    counted = engine.stats().models[0].weight_bytes / BLOCK_BYTES
    assert counted == 69.5, "40 of what every token uses, and half of the rest beside a block of KV"
    assert "large is larger than memory: 4.34 KiB of its 18.8 KiB are counted" in caplog.text
    engine.submit(toy_request("r", [1] * 100, 50, model_id="large"))
    assert run_all(engine).tokens["r"] == expected_tokens([1] * 100, 50, 5)
    engine.unload_model("large")
    assert engine.memory.budget.weight_bytes == 0
    with pytest.raises(ModelDoesNotFit, match=r"\(weights 7.5 KiB, KV at least"):
        engine.attach_model("huge", ToyModel(5, **{**large, "idle_weight_bytes": 180 * BLOCK_BYTES}))


def test_others_sleep_for_experts_that_then_fit():
    engine = two_models(20, memory_limit_bytes=100 * BLOCK_BYTES)
    experts = {"weight_bytes": 95 * BLOCK_BYTES, "idle_weight_bytes": 90 * BLOCK_BYTES}
    engine.attach_model("c", ToyModel(3, **experts))
    assert engine.stats().models[-1].weight_bytes == 95 * BLOCK_BYTES


def test_weights_take_nothing_that_requests_use():
    engine = toy_engine(num_blocks=20, memory_limit_bytes=2000)
    engine.submit(toy_request("r", [1] * 100, 20, session="s"))
    results = steps(engine, 2)
    with pytest.raises(ModelDoesNotFit):
        engine.attach_model("b", ToyModel(2, weight_bytes=2000 - 7 * BLOCK_BYTES))
    run_all(engine, results)
    assert engine.sessions.statuses()[0].pinned
    engine.attach_model("b", ToyModel(2, weight_bytes=2000 - 7 * BLOCK_BYTES))
    assert not engine.sessions.statuses()[0].pinned, "a session may make way"


def test_sessions_do_not_make_way_for_what_does_not_fit_anyhow():
    engine = toy_engine(num_blocks=20, memory_limit_bytes=2000)
    engine.submit(toy_request("r", [1] * 100, 20, session="s"))
    run_all(engine)
    with pytest.raises(ModelDoesNotFit):
        engine.attach_model("b", ToyModel(2, weight_bytes=2000))
    assert engine.sessions.statuses()[0].pinned


# Static reservation.


def static_engine(num_blocks: int, **settings: object) -> EngineCore:
    values = {"elastic": False, "max_running": 2, "static_context": 100, **settings}
    return EngineCore(ToyBackend(), EngineSettings(kv_limit_bytes=num_blocks * BLOCK_BYTES, **values))


def test_a_static_model_has_all_its_memory_from_the_load_to_the_end():
    engine = static_engine(30)
    engine.attach_model("a", ToyModel(1))
    engine.attach_model("b", ToyModel(2, context_length=32))
    assert blocks(engine, "committed") == blocks(engine, "reserved") == [14, 4]
    for i in range(6):
        engine.submit(toy_request(f"a{i}", [i] * 80, 20, model_id="a"))
        engine.submit(toy_request(f"b{i}", [i] * 20, 10, model_id="b"))
    results = Results()
    while engine.has_work:
        steps(engine, 1, results)
        assert blocks(engine, "committed") == [14, 4]
    for i in range(6):
        assert results.tokens[f"a{i}"] == expected_tokens([i] * 80, 20, 1)
        assert results.tokens[f"b{i}"] == expected_tokens([i] * 20, 10, 2)
    engine.trim_kv()
    engine.memory.relieve()
    assert engine.set_limits(kv_limit_bytes=2 * BLOCK_BYTES) == 16 * BLOCK_BYTES
    assert blocks(engine, "committed") == [14, 4]
    engine.check()
    engine.unload_model("a")
    assert blocks(engine, "committed") == [4]


def test_static_reservations_that_do_not_fit_are_refused():
    engine = static_engine(27)
    engine.attach_model("a", ToyModel(1))
    engine.hold_model("a", is_held=True)
    with pytest.raises(ModelDoesNotFit, match=r"b needs 896 B of KV memory, the limit is .*: a holds 896 B"):
        engine.attach_model("b", ToyModel(2))
    assert not engine.lease(14 * BLOCK_BYTES)
    assert engine.lease(13 * BLOCK_BYTES)
    engine.check()


@pytest.mark.parametrize("elastic", [True, False])
def test_a_model_for_which_the_device_has_no_memory_leaves_nothing(elastic: bool):
    class Exhausted(ToyModel):
        def reserve(self, reservation: KvReservation) -> tuple[ToyMemory, ...]:
            if elastic:
                raise ModelLoadError("no address space")
            return super().reserve(reservation)

    engine = static_engine(30, elastic=elastic)
    model = Exhausted(1, weight_bytes=100, device_memory=ToyDeviceMemory(0))
    with pytest.raises(ModelLoadError, match="no address space" if elastic else "the toy is full"):
        engine.attach_model("a", model)
    assert model.closed
    engine.attach_model("a", ToyModel(1, weight_bytes=100))
    assert engine.memory.budget.weight_bytes == 100
    engine.check()


def test_pressure_takes_the_older_half_of_what_is_cached():
    engine = two_models(40)
    compute(engine, "a", 6)
    compute(engine, "b", 6)
    compute(engine, "a", 4, token=2)
    assert engine.memory.reclaimable_bytes == 16 * BLOCK_BYTES
    engine.memory.relieve()
    assert blocks(engine, "committed") == [4, 4]
    engine.check()


def test_those_who_are_sure_and_those_who_come_first_do_not_drive_each_other_out_for_ever():
    engine = EngineCore(ToyBackend(), EngineSettings(kv_limit_bytes=24 * BLOCK_BYTES))
    engine.attach_model("free", ToyModel())
    engine.attach_model("sure", ToyModel(1), guaranteed_bytes=10 * BLOCK_BYTES)
    engine.submit(toy_request("before", [6] * 220, 1, model_id="sure"))
    run_all(engine)
    engine.submit(toy_request("first", [1] * 113, 3, model_id="free", priority=1))
    engine.submit(toy_request("long", [2] * 162, 3, model_id="sure"))
    engine.submit(toy_request("short", [3] * 83, 3, model_id="sure"))
    results = run_all(engine)
    assert results.tokens["first"] == expected_tokens([1] * 113, 3)
    assert results.tokens["long"] == expected_tokens([2] * 162, 3, 1)
    assert results.tokens["short"] == expected_tokens([3] * 83, 3, 1)
