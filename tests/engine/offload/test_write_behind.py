"""What is computed gets its files at once: a crash costs little, and a burst pushes nothing out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from puna._native import UnsavedNodes
from puna.engine.offload.saving import prefix_save
from puna.kv import BLOCK_TOKENS
from puna.kv.files.block_files import HEADER_BYTES, BlockFiles
from puna.kv.files.write_allowance import WriteAllowance
from tests.engine.offload.disk_desk import OTHER, PROMPT, Desk
from tests.engine.toy import BLOCK_BYTES, STATE_BYTES, ToyModel, expected_tokens, run_all

pytestmark = pytest.mark.native

FILE_BYTES = HEADER_BYTES + BLOCK_BYTES
LONG = [i % 11 for i in range(60 * BLOCK_TOKENS + 5)]


def test_a_crash_in_mid_prefill_costs_no_more_than_the_last_step(tmp_path: Path):
    desk = Desk(tmp_path, prefill_tokens=64)
    desk.submit(LONG)
    desk.threads.run()
    for _ in range(8):
        desk.engine.step()
        desk.tend()
    later = desk.killed(tmp_path)
    assert later.say(LONG) == 8 * 64
    later.close()


def test_a_burst_pushes_out_nothing_that_is_not_on_disk(tmp_path: Path):
    desk = Desk(tmp_path, num_blocks=70)
    for first in range(4):
        desk.say([first, *LONG[:600]])
        desk.tend()
    for first in range(4):
        assert desk.say([first, *LONG[:600]]) >= 600
    desk.close()


def test_the_state_behind_a_reply_that_comes_back_in_other_words_is_not_written(tmp_path: Path):
    desk = Desk(tmp_path, ToyModel(state_bytes=STATE_BYTES))
    for end in (8, 15):
        desk.say([*PROMPT, *[end] * end], boundaries=[len(PROMPT)])
        desk.tend()
    sizes = [path.stat().st_size for path in tmp_path.glob("*/*.kv")]
    assert sum(size > STATE_BYTES for size in sizes) == 1
    desk.close()


def test_few_blocks_wait_for_more_but_not_for_long(tmp_path: Path):
    desk = Desk(tmp_path)
    desk.say(PROMPT[: 5 * BLOCK_TOKENS])
    desk.tend(waited=False)
    assert desk.disk.saved_tokens == 0
    assert desk.engine.prefixes.tend() == pytest.approx(0.03)
    desk.tend()
    assert desk.disk.saved_tokens == 5 * BLOCK_TOKENS + 9, "with the reply"
    desk.close()


def test_what_is_too_short_to_be_looked_for_is_not_written(tmp_path: Path):
    desk = Desk(tmp_path)
    for first in range(20):
        desk.say([first, *PROMPT[: 2 * BLOCK_TOKENS]])
        desk.tend()
    assert list(tmp_path.glob("*/*.kv")) == []
    desk.say([1, *PROMPT[: 6 * BLOCK_TOKENS]])
    desk.tend()
    assert desk.killed(tmp_path).say([1, *PROMPT[: 6 * BLOCK_TOKENS]]) == 6 * BLOCK_TOKENS
    desk.close()


def test_wishes_are_kept(tmp_path: Path):
    desk = Desk(tmp_path)
    desk.say(PROMPT, cache_to_disk=False)
    desk.tend()
    assert list(tmp_path.glob("*/*.kv")) == []
    desk.say(PROMPT)
    desk.tend()
    assert desk.killed(tmp_path).say(PROMPT) == len(PROMPT) - 1
    desk.close()
    for settings in ({"write_behind": False}, {"kv_disk_bytes": 0}):
        off = Desk(tmp_path / "off", **settings)
        off.say(PROMPT)
        off.tend()
        assert list(tmp_path.glob("off/*/*.kv")) == []
        off.close()


@pytest.mark.parametrize("write_behind", [True, False])
def test_nothing_in_files_tells_what_is_not_for_the_disk(tmp_path: Path, write_behind: bool):
    desk = Desk(tmp_path, write_behind=write_behind)
    desk.say(LONG[: 6 * BLOCK_TOKENS])
    desk.say([*LONG[: 6 * BLOCK_TOKENS], *[77] * 40], cache_to_disk=False)
    desk.tend()
    desk.offload()
    desk.threads.run()
    files = list(tmp_path.glob("*/*.kv"))
    assert len(files) == 7
    assert not any(bytes([77, 0, 0, 0]) * 8 in path.read_bytes() for path in files)
    desk.close()


def test_a_snapshot_is_not_written_with_tokens_that_are_not_for_the_disk(tmp_path: Path):
    desk = Desk(tmp_path, ToyModel(state_bytes=STATE_BYTES))
    start = LONG[: 6 * BLOCK_TOKENS + 5]
    desk.say([*start, *[77] * 40], cache_to_disk=False)
    desk.say([*start, 1, 2], boundaries=[len(start)])
    desk.tend()
    values = [
        np.frombuffer(path.read_bytes()[HEADER_BYTES:], np.uint16) for path in tmp_path.glob("*/*-0.kv")
    ]
    assert not any((of_file & 0x7F == 77).sum() > 5 for of_file in values)
    later = desk.killed(tmp_path, ToyModel(state_bytes=STATE_BYTES))
    assert later.say([*start, 3, 4]) == len(start)
    later.close()
    desk.close()


def test_a_disk_that_does_not_answer_is_no_reason_to_remember_what_is_new(tmp_path: Path):
    desk = Desk(tmp_path)
    desk.say(PROMPT)
    (fresh,) = desk.engine.prefixes._behind._models.values()
    for _ in range(3):
        desk.engine.prefixes.tend()
        desk.engine._clock.now_s += 4
    desk.submit(OTHER, cache_prompt=False)
    run_all(desk.engine)
    assert fresh.unsaved.num_fresh > 0
    desk.engine.prefixes.tend()
    assert fresh.unsaved.num_fresh == 0
    desk.threads.run()
    desk.say([*OTHER, 1])
    desk.tend()
    assert desk.killed(tmp_path).say(OTHER) == len(OTHER) - 1
    desk.close()


def test_a_long_path_without_files_is_lent_a_part_at_a_time(tmp_path: Path):
    desk = Desk(tmp_path, ToyModel(context_length=2000), write_behind=False)
    (model,) = desk.engine.prefixes.models
    unsaved = UnsavedNodes(model.kv.tree, 4)
    desk.say(LONG)
    unsaved.forget()
    desk.say([*LONG, *[3] * 40])
    nodes = [unsaved.take(8) for _ in range(10)]
    assert max(map(len, nodes)) == 8
    named: set[int | str] = {""}
    for node in (node for some in nodes for node in some):
        assert node.parent in named
        named.add(node.number)
    assert len(named) > 60
    desk.close()


def test_a_day_has_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    now_s = 1e9
    monkeypatch.setattr("puna.kv.files.write_allowance.time.time", lambda: now_s)
    for count in (12, 12, 21):  # a restart does not make a day longer
        desk = Desk(tmp_path, kv_bytes_per_day=12 * FILE_BYTES)
        desk.say(PROMPT)
        desk.tend()
        assert len(list(tmp_path.glob("*/*.kv"))) == count
        if count == 12:
            now_s += 60
            desk.offload()
            desk.threads.run()
            assert len(list(tmp_path.glob("*/*.kv"))) == count, "not when it is idle, either"
            if len(list(tmp_path.glob("written"))):
                now_s += 43200
        desk.close()


def test_what_takes_longer_to_write_than_to_compute_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    desk, write = Desk(tmp_path), BlockFiles.write

    def slow_write(*arguments: object) -> bool:
        desk.engine._clock.now_s += 100.0
        return write(*arguments)

    monkeypatch.setattr(BlockFiles, "write", slow_write)
    desk.say(PROMPT)
    desk.tend()
    assert desk.disk.saved_tokens > 0, "at first nothing is known"
    before = desk.disk.saved_tokens
    desk.say(OTHER)
    desk.tend()
    assert desk.disk.saved_tokens == before
    desk.close()


def test_files_stay_older_than_what_they_build_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """However long a conversation is idle between: leaves go first."""
    desk, now_ns = Desk(tmp_path), 10**18
    monkeypatch.setattr("puna.engine.offload.saving.node_files.time.time_ns", lambda: now_ns)
    for length in (100, 180, 181, 300):
        now_ns += 4 * 10**11
        desk.say(PROMPT[:length])
        desk.tend()
    files = next(iter(desk.engine.prefixes.models)).files
    chain = files.chain("", bytes(memoryview(b"".join(t.to_bytes(4, "little") for t in PROMPT[:288]))))
    ages = [next(tmp_path.glob(f"*/{block.file_name()}")).stat().st_mtime_ns for block in chain]
    assert ages == sorted(ages, reverse=True)
    assert ages[0] == now_ns
    assert [files.following(block) for block in chain[:-1]] == [block.tokens for block in chain[1:]]
    desk.close()


def test_what_was_used_last_still_goes_last(tmp_path: Path):
    desk = Desk(tmp_path, num_blocks=45)
    desk.say(PROMPT)
    desk.tend()
    desk.say(OTHER)
    desk.tend()
    for path in tmp_path.glob("*/*.kv"):
        path.unlink()
    desk.say([5] * 64)  # pushes the leaves of the first out
    assert desk.say(OTHER) == len(OTHER) - 1
    assert 0 < desk.say(PROMPT) < len(PROMPT) - 1
    desk.close()


def test_those_who_run_take_the_blocks_that_are_written(tmp_path: Path):
    desk = Desk(tmp_path, num_blocks=40)
    desk.say(PROMPT)
    desk.engine.prefixes.tend()
    desk.engine._clock.now_s += 0.3
    desk.engine.prefixes.tend()
    assert desk.model.used_kv_bytes == 20 * BLOCK_BYTES, "of the last a copy is written"
    prompt = [2] * 16 * 30
    runner = desk.submit(prompt, max_tokens=20)
    desk.threads.run_one(reads=True)  # nothing is found
    assert run_all(desk.engine).tokens[runner] == expected_tokens(prompt, 20)
    desk.tend()
    assert desk.killed(tmp_path).say(prompt) == len(prompt) - 1
    desk.close()


def test_models_take_turns(tmp_path: Path):
    desk = Desk(tmp_path)
    desk.engine.attach_model("other", ToyModel(1))
    desk.say(LONG)
    desk.submit(LONG, model_id="other")
    desk.run()
    desk.engine.prefixes.tend()
    for _ in range(4):
        desk.threads.run_one(reads=False)
    assert {len(list(path.glob("*.kv"))) > 0 for path in tmp_path.iterdir() if path.is_dir()} == {True}
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2
    desk.run()
    desk.close()


def test_writing_rests_while_something_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pauses: list[float] = []
    monkeypatch.setattr(prefix_save.time, "sleep", pauses.append)
    desk = Desk(tmp_path)
    desk.submit(PROMPT, max_tokens=100)
    desk.threads.run()
    for _ in range(3):
        desk.engine.step()
    desk.tend()
    assert len(pauses) == 20
    run_all(desk.engine)
    desk.threads.run()
    desk.close()


def test_the_days_bytes_of_several_processes_are_added(tmp_path: Path):
    from puna.kv.files.state_directory import StateDirectory

    def directory() -> StateDirectory:
        return StateDirectory.open(tmp_path)

    one, other = WriteAllowance(directory, 100), WriteAllowance(directory, 100)
    assert one.take(40)
    one.sync()
    assert other.take(40)
    other.sync()
    assert not one.is_used_up
    one.sync()
    assert not one.take(40)
    assert one.is_used_up
    (tmp_path / "written").write_bytes(b"?")
    assert WriteAllowance(directory, 100).take(100)


def test_prompt_tokens_are_counted_by_where_they_came_from(tmp_path: Path):
    desk = Desk(tmp_path, num_blocks=100)
    desk.say(LONG)
    desk.say(LONG)
    desk.tend()
    metrics = desk.engine.stats().metrics["toy"]
    assert (metrics.computed_tokens, metrics.cached_tokens) == (len(LONG) + 1, len(LONG) - 1)
    later = desk.killed(tmp_path)
    later.say([*LONG, 1, 2, 3])
    metrics = later.engine.stats().metrics["toy"]
    found = metrics.cached_tokens
    assert metrics.computed_tokens == len(LONG) + 3 - found
    assert metrics.restored_tokens == found >= len(LONG) - 1
    later.close()
    desk.close()
