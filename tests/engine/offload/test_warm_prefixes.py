"""What was cached is found again on disk: after idle time, an unload, a restart; nobody is worse off."""

from __future__ import annotations

from pathlib import Path

import pytest

from puna.engine.offload.saving import prefix_save
from puna.engine.offload.warm_prefixes import SAVE_S
from puna.kv import BLOCK_TOKENS
from puna.kv.files.block_files import HEADER_BYTES, BlockFiles
from tests.engine.offload.disk_desk import OTHER, PROMPT, Desk
from tests.engine.toy import BLOCK_BYTES, Results, ToyModel, expected_tokens, run_all

pytestmark = pytest.mark.native


@pytest.fixture
def desk(tmp_path: Path):
    desk = Desk(tmp_path)
    yield desk
    desk.close()


def test_a_prefix_outlives_its_model(desk: Desk):
    assert desk.say(PROMPT) == 0
    desk.reload()
    desk.threads.run()
    assert desk.model.committed_kv_bytes == 0
    assert desk.say(PROMPT) == len(PROMPT) - 1
    assert desk.disk.restored_tokens == 21 * BLOCK_TOKENS
    assert desk.disk.saved_tokens == len(PROMPT) + 9


def test_a_prefix_outlives_the_process(desk: Desk, tmp_path: Path):
    desk.say(PROMPT)
    told = []
    desk.engine.prefixes.save_all(lambda: told.append(True))
    assert not told
    desk.threads.run()
    assert told
    desk.engine.prefixes.save_all(lambda: told.append(True))
    desk.threads.run()
    assert len(told) == 2
    later = Desk(tmp_path)
    assert later.disk.num_bytes == desk.disk.num_bytes > 0
    assert later.say(PROMPT) == len(PROMPT) - 1
    later.close()


def test_what_goes_on_differently_is_found_up_to_there(desk: Desk):
    desk.say(PROMPT)
    desk.reload()
    assert desk.say(PROMPT[:200] + [0, 0, 0] * 20) == 200, "within a block, too"
    desk.reload()
    assert desk.say([*PROMPT, 0, 0, 0]) >= len(PROMPT), "the rest of the block is the first answer's"


def test_an_idle_model_gives_its_memory_back_and_finds_its_prefixes_again(desk: Desk):
    clock = desk.engine._clock
    desk.say(PROMPT)
    assert desk.engine.prefixes.offload_idle() == pytest.approx(3.0)
    clock.now_s += 2.9
    assert desk.engine.prefixes.offload_idle() == pytest.approx(0.1)
    clock.now_s += 0.2
    assert desk.engine.prefixes.offload_idle() is None
    assert desk.model.used_kv_bytes > 0, "held while it is written"
    desk.threads.run()
    assert desk.model.committed_kv_bytes == 0
    assert desk.engine.prefixes.offload_idle() is None
    assert desk.say(PROMPT) == len(PROMPT) - 1


def test_a_model_is_idle_though_others_are_not(desk: Desk):
    desk.engine.attach_model("other", ToyModel(1))
    desk.say(PROMPT)
    desk.submit(PROMPT, model_id="other", max_tokens=200)
    desk.threads.run()
    for _ in range(5):
        desk.engine.step()
    desk.engine._clock.now_s += 10
    desk.engine.prefixes.offload_idle()
    desk.threads.run()
    toy, other = desk.engine.stats().models
    assert (toy.committed_kv_bytes, other.num_running) == (0, 1)
    assert other.used_kv_bytes > 0


def test_what_is_asked_for_while_it_is_put_away_stays(desk: Desk):
    desk.say(PROMPT)
    desk.engine._clock.now_s += 10
    desk.engine.prefixes.offload_idle()
    request_id = desk.submit(PROMPT)
    results = run_all(desk.engine)
    assert results.last[request_id].stats.cached_tokens == len(PROMPT) - 1
    desk.threads.run()
    assert desk.model.cached_kv_bytes > 0


def test_without_a_disk_idle_memory_goes_all_the_same(tmp_path: Path):
    desk = Desk(tmp_path, kv_disk_bytes=0)
    desk.say(PROMPT)
    desk.engine._clock.now_s += 10
    desk.engine.prefixes.offload_idle()
    assert desk.model.committed_kv_bytes == 0
    assert desk.disk is None
    assert desk.say(PROMPT) == 0
    desk.reload()
    assert not desk.threads.has_work
    desk.close()
    assert list(tmp_path.iterdir()) == []


def test_what_others_remove_from_the_disk_is_noticed(desk: Desk, tmp_path: Path):
    desk.say(PROMPT)
    desk.offload()
    desk.threads.run()
    assert desk.disk.num_bytes > 0
    for path in tmp_path.glob("*/*.kv"):
        path.unlink()
    desk.engine._clock.now_s += 10
    assert desk.disk.num_bytes > 0, "a look at many files takes its time"
    desk.threads.run()
    assert desk.disk.num_bytes == 0
    assert not desk.threads.has_work, "not at every question"


def test_memory_that_is_reserved_for_good_is_kept_and_nothing_goes_to_disk(tmp_path: Path):
    desk = Desk(tmp_path, elastic=False, static_context=800, max_running=1)
    desk.say(PROMPT)
    desk.engine._clock.now_s += 10
    assert desk.engine.prefixes.offload_idle() is None
    assert desk.say(PROMPT) == len(PROMPT) - 1
    desk.reload()
    desk.close()
    assert list(tmp_path.iterdir()) == []


def test_slots_are_emptied_and_nothing_goes_to_disk(tmp_path: Path):
    desk = Desk(tmp_path, cache_policy="slots")
    desk.say(PROMPT)
    assert desk.model.used_kv_bytes > 0
    desk.engine._clock.now_s += 10
    desk.engine.prefixes.offload_idle()
    assert desk.model.committed_kv_bytes == 0
    desk.close()
    assert list(tmp_path.iterdir()) == []


def test_requests_for_one_prefix_share_what_is_read(desk: Desk):
    desk.say(PROMPT)
    desk.reload()
    desk.threads.run()
    ids = [desk.submit([*PROMPT, i]) for i in range(5)]
    assert desk.model.num_waiting == 5
    results = desk.run()
    for i, request_id in enumerate(ids):
        assert results.tokens[request_id] == expected_tokens([*PROMPT, i], 10)
        assert results.last[request_id].stats.cached_tokens >= len(PROMPT) - 5
    assert desk.disk.restored_tokens == 21 * BLOCK_TOKENS


def test_others_go_on_while_a_prefix_is_read(desk: Desk):
    desk.say(PROMPT)
    desk.reload()
    desk.threads.run()
    waiting, quick = desk.submit(PROMPT), desk.submit([3, 4, 5])
    results = run_all(desk.engine)
    assert set(results.last) == {quick}
    assert set(desk.run().last) == {waiting}


def test_who_comes_while_an_unloaded_model_is_still_written_finds_it(desk: Desk):
    desk.say(PROMPT)
    desk.reload()
    request_id = desk.submit(PROMPT)
    assert not desk.engine.has_work
    assert desk.model.num_waiting == 1
    assert desk.run().last[request_id].stats.cached_tokens == len(PROMPT) - 1


def test_a_model_that_goes_does_not_wait_until_an_idle_one_is_saved(desk: Desk):
    desk.engine.attach_model("idle", ToyModel(1, clock=desk.engine._clock))
    desk.say(PROMPT)
    desk.submit(OTHER, model_id="idle")
    desk.run()
    desk.offload("idle")  # a save without a deadline
    desk.reload()
    assert desk.say(PROMPT) == len(PROMPT) - 1
    idle = next(model for model in desk.engine.stats().models if model.model_id == "idle")
    assert idle.cached_kv_bytes == idle.committed_kv_bytes > 0, "what was not saved is still there"
    desk.offload("idle")
    desk.threads.run()
    desk.engine.unload_model("idle")
    desk.engine.attach_model("idle", ToyModel(1, clock=desk.engine._clock))
    again = desk.submit(OTHER, model_id="idle")
    assert desk.run().last[again].stats.cached_tokens == len(OTHER) - 1


@pytest.mark.parametrize("num_jobs", [0, 1])
def test_cancelling_while_a_prefix_is_looked_for_or_read(desk: Desk, num_jobs: int):
    desk.say(PROMPT)
    desk.reload()
    desk.threads.run()
    cancelled, other = desk.submit(PROMPT), desk.submit(PROMPT)
    for _ in range(num_jobs):
        desk.threads.run_one(reads=True)
    desk.engine.cancel(cancelled)
    desk.engine.check()
    results = desk.run()
    assert results.last[cancelled].finish_reason == "cancelled"
    assert results.last[other].stats.cached_tokens == len(PROMPT) - 1
    desk.reload()
    desk.threads.run()
    alone = desk.submit(PROMPT)
    for _ in range(num_jobs):
        desk.threads.run_one(reads=True)
    desk.engine.cancel(alone)
    assert desk.model.used_kv_bytes == 0
    desk.run()
    desk.engine.check()


@pytest.mark.parametrize("num_jobs", [0, 1])
def test_who_comes_after_somebody_who_left_while_it_was_read(desk: Desk, num_jobs: int):
    desk.say(PROMPT)
    desk.reload()
    desk.threads.run()
    gone = desk.submit(PROMPT)
    for _ in range(num_jobs):
        desk.threads.run_one(reads=True)
    desk.engine.cancel(gone)
    again = desk.submit(PROMPT)
    desk.engine.check()
    assert desk.run().last[again].stats.cached_tokens == len(PROMPT) - 1


def test_who_wants_nothing_cached_does_not_wait_for_what_is_written(desk: Desk):
    desk.say(PROMPT)
    desk.reload()
    desk.submit(PROMPT, cache_prompt=False)
    assert desk.engine.has_work


@pytest.mark.parametrize("num_jobs", [0, 1])
def test_unloading_while_a_prefix_is_read(desk: Desk, num_jobs: int):
    desk.say(PROMPT)
    desk.reload()
    desk.threads.run()
    request_id = desk.submit(PROMPT)
    for _ in range(num_jobs):
        desk.threads.run_one(reads=True)
    desk.engine.unload_model("toy")
    desk.engine.check()
    assert desk.run().last[request_id].error == "the model was unloaded"
    assert desk.engine.memory.budget.committed_bytes == 0


def test_a_request_whose_model_is_unloaded_twice(desk: Desk):
    desk.say(PROMPT)
    desk.reload()
    request_id = desk.submit(PROMPT)  # waits for what is written
    desk.reload()
    assert desk.engine.step()[0].request_id == request_id
    assert desk.say(PROMPT) == len(PROMPT) - 1


def test_a_damaged_file_costs_what_comes_behind_it(desk: Desk, tmp_path: Path):
    desk.say(PROMPT)
    desk.reload()
    desk.threads.run()
    by_age = sorted(tmp_path.rglob("*.kv"), key=lambda path: -path.stat().st_mtime_ns)
    damaged = bytearray(by_age[10].read_bytes())
    damaged[-1] ^= 1
    by_age[10].write_bytes(damaged)
    assert desk.say(PROMPT) == 10 * BLOCK_TOKENS
    assert not by_age[10].exists()
    desk.reload()
    assert desk.say(PROMPT) == len(PROMPT) - 1


def test_a_file_that_has_gone_costs_what_comes_behind_it(desk: Desk, tmp_path: Path):
    desk.say(PROMPT)
    desk.reload()
    desk.threads.run()
    by_age = sorted(tmp_path.rglob("*.kv"), key=lambda path: -path.stat().st_mtime_ns)
    by_age[7].unlink()
    assert desk.say(PROMPT) == 7 * BLOCK_TOKENS


def test_salts_and_wishes_for_no_cache_are_kept(desk: Desk):
    desk.say(PROMPT, cache_salt="tenant")
    desk.reload()
    assert desk.say(PROMPT) == 0
    desk.reload()
    assert desk.say(PROMPT, cache_prompt=False) == 0
    desk.reload()
    assert desk.say(PROMPT, cache_salt="tenant") == len(PROMPT) - 1


def test_the_directory_keeps_its_limit(tmp_path: Path):
    desk = Desk(tmp_path, kv_disk_bytes=30 * (HEADER_BYTES + BLOCK_BYTES))
    for first in range(4):
        desk.say([first, *PROMPT])
        desk.reload()
        desk.threads.run()
        assert desk.disk.num_bytes <= desk.disk.limit_bytes
    assert desk.say([3, *PROMPT]) == len(PROMPT)
    desk.reload()
    assert 0 < desk.say([2, *PROMPT]) < len(PROMPT), "its leaves have gone, its root has not"
    desk.close()


def test_reading_takes_no_memory_from_those_who_run(tmp_path: Path):
    desk = Desk(tmp_path, num_blocks=30)
    desk.say(PROMPT)
    desk.reload()
    desk.threads.run()
    runner = desk.submit(OTHER)
    for _ in range(3):
        desk.engine.step()
    waiting = desk.submit(PROMPT)
    results = desk.run()
    assert desk.model.num_preemptions == 0
    assert results.tokens[runner][-10:] == expected_tokens(OTHER, 10)[-len(results.tokens[runner]) :]
    assert results.tokens[waiting] == expected_tokens(PROMPT, 10)
    assert results.last[waiting].stats.cached_tokens == len(PROMPT) - 1, "it is read when there is room"
    desk.close()


def test_a_search_that_is_given_up_is_begun_again(desk: Desk):
    desk.say(PROMPT)
    desk.reload()
    desk.threads.run()
    waiting = desk.submit(PROMPT)
    assert desk.engine.prefixes.give_up_one()
    assert desk.run().last[waiting].stats.cached_tokens == len(PROMPT) - 1


def test_those_who_run_take_the_memory_that_is_read_into(tmp_path: Path):
    desk = Desk(tmp_path, num_blocks=40)
    desk.say(PROMPT)
    desk.reload()
    desk.threads.run()
    waiting = desk.submit(PROMPT)
    desk.threads.run_one(reads=True)  # found: 21 blocks are held
    assert desk.model.used_kv_bytes == 21 * BLOCK_BYTES
    runner = desk.submit([2] * 16 * 30, max_tokens=20, cache_prompt=False)
    results = desk.run()
    assert results.tokens[runner] == expected_tokens([2] * 16 * 30, 20)
    assert results.tokens[waiting] == expected_tokens(PROMPT, 10)
    assert results.last[waiting].stats.cached_tokens == len(PROMPT) - 1, "it is read when there is room again"
    desk.close()


def test_what_a_preempted_request_had_computed_is_read(tmp_path: Path):
    desk = Desk(tmp_path, num_blocks=40)
    growing = [2] * 16 * 12
    first = desk.submit(growing, max_tokens=16 * 18, cache_prompt=False)
    later = desk.submit(PROMPT, max_tokens=60)
    results = Results()
    while desk.engine.has_work or desk.threads.has_work:
        results.add(desk.engine.step())
        desk.engine.prefixes.tend()
        desk.threads.run()
    assert desk.model.num_preemptions == 1
    assert results.tokens[first] == expected_tokens(growing, 16 * 18)
    assert results.tokens[later] == expected_tokens(PROMPT, 60)
    num_computed = desk.engine._recorder.metrics["toy"].prefill_tokens
    assert num_computed < len(growing) + len(PROMPT) + 8 * BLOCK_TOKENS
    desk.close()


def test_those_who_run_take_the_memory_that_is_written(tmp_path: Path):
    desk = Desk(tmp_path, num_blocks=40, write_behind=False)
    desk.say(PROMPT)
    desk.engine._clock.now_s += 10
    desk.engine.prefixes.offload_idle()
    desk.engine.attach_model("other", ToyModel(1))
    runner = desk.submit([2] * 16 * 30, max_tokens=20, cache_prompt=False, model_id="other")
    assert run_all(desk.engine).tokens[runner] == expected_tokens([2] * 16 * 30, 20, salt=1)
    desk.run()
    assert desk.disk.saved_tokens == 0
    assert desk.model.cached_kv_bytes > 0, "what was not taken may be saved later"
    desk.engine._clock.now_s += 10
    desk.engine.prefixes.offload_idle()
    desk.run()
    assert desk.disk.saved_tokens > 0
    assert desk.model.committed_kv_bytes == 0
    desk.close()


def test_reading_that_takes_longer_than_computing_is_left(tmp_path: Path):
    desk = Desk(tmp_path)
    desk.say(PROMPT)
    desk.reload()
    desk.threads.run()
    desk.submit(PROMPT)
    desk.threads.run_one(reads=True)
    desk.engine._clock.now_s += 100  # a slow disk
    desk.run()
    desk.say([5] * 300)  # so that the new model knows how long it takes
    desk.say([6] * 300)
    desk.engine.trim_kv()
    assert desk.say(PROMPT) == 0
    for _ in range(30):
        desk.engine.trim_kv()
        if desk.say(PROMPT):
            break
    else:
        raise AssertionError("it is never tried again")
    desk.close()


def test_saving_takes_its_time_while_others_run(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    pauses: list[float] = []
    monkeypatch.setattr(prefix_save.time, "sleep", pauses.append)
    desk.engine.attach_model("other", ToyModel(1))
    desk.say(PROMPT)
    desk.offload()
    desk.submit([1, 2, 3], model_id="other", max_tokens=100)
    desk.engine.step()
    desk.threads.run()
    assert len(pauses) == 21
    desk.run()
    desk.say(OTHER)
    desk.reload()
    desk.submit(OTHER)  # does not run: it waits for what is written
    desk.run()
    assert len(pauses) == 21


def test_saving_ends_in_time(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    desk.say(PROMPT)
    write = BlockFiles.write

    def slow_write(*arguments: object) -> bool:
        desk.engine._clock.now_s += 0.6 * SAVE_S
        return write(*arguments)

    monkeypatch.setattr(BlockFiles, "write", slow_write)
    desk.reload()
    desk.threads.run()
    assert desk.disk.saved_tokens == 2 * BLOCK_TOKENS
    assert desk.engine.memory.budget.committed_bytes == 0


def test_a_disk_that_cannot_be_written_disturbs_nobody(tmp_path: Path):
    (tmp_path / "file").touch()
    desk = Desk(tmp_path / "file")
    desk.say(PROMPT)
    desk.engine._clock.now_s += 10
    desk.engine.prefixes.offload_idle()
    desk.threads.run()
    assert desk.model.committed_kv_bytes == 0
    assert desk.say(PROMPT) == 0
    desk.close()
