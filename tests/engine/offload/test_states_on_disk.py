"""What is on disk of models with recurrent layers is found up to the last snapshot, and is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from puna.kv import BLOCK_TOKENS
from tests.engine.offload.disk_desk import Desk
from tests.engine.toy import STATE_BYTES, ToyModel, expected_tokens

pytestmark = pytest.mark.native

TEXT = [(i * i * 7 + i) % 90 for i in range(700)]
NUM_TURN = 19 * BLOCK_TOKENS + 5
TURN = TEXT[:NUM_TURN]
MARK = [90, 91, 92]
"""With which a reply begins."""
NEXT = [*TURN, 90, 91, *TEXT[400:]]
"""It comes back in other words."""


def hybrid() -> ToyModel:
    return ToyModel(state_bytes=STATE_BYTES)


@pytest.fixture
def desk(tmp_path: Path):
    desk = Desk(tmp_path, hybrid(), num_blocks=400)
    yield desk
    desk.close()


def states(directory: Path) -> list[Path]:
    return sorted(directory.glob("*/*-1.kv"))


@pytest.mark.parametrize("length", [NUM_TURN, 19 * BLOCK_TOKENS, 19 * BLOCK_TOKENS - 1])
def test_the_next_turn_after_a_crash_computes_what_is_new(desk: Desk, tmp_path: Path, length: int):
    turn = TEXT[:length]
    desk.say([*turn, *MARK], boundaries=[length])
    desk.tend()
    later = desk.killed(tmp_path, hybrid(), num_blocks=400)
    assert later.say([*turn, 90, 91, *TEXT[400:]], boundaries=[length]) == length
    later.close()


def test_windows_before_a_snapshot_within_a_block_are_read(tmp_path: Path):
    windows = (None, 20)
    desk = Desk(tmp_path, ToyModel(windows=windows, state_bytes=STATE_BYTES))
    for length in (74, 75, 80):  # the first token seen is the last of a block, the first of one, within one
        prompt = [length, *TEXT[: length - 1]]
        desk.submit([*prompt, *MARK], boundaries=[length])
        desk.run()
        desk.tend()
        later = desk.killed(tmp_path, ToyModel(windows=windows, state_bytes=STATE_BYTES))
        name = later.submit([*prompt, 90, 91])
        results = later.run()
        assert results.last[name].stats.cached_tokens == length
        wanted = expected_tokens([*prompt, 90, 91], 10, windows=windows, has_state=True)
        assert results.tokens[name] == wanted
        later.close()
    desk.close()


def test_turn_by_turn_nothing_is_computed_twice(desk: Desk, tmp_path: Path):
    history: list[int] = []
    desks = [desk]
    for turn in range(4):
        before = len(history)
        history += TEXT[turn * 100 : turn * 100 + 131]
        found = desks[-1].say([*history, *MARK], boundaries=[len(history)])
        assert found == before, "where the last prompt's reply began"
        desks[-1].tend()
        desks.append(desks[-1].killed(tmp_path, hybrid(), num_blocks=400))
    for later in desks[1:]:
        later.close()


def test_states_outlive_idle_time_and_unloading(desk: Desk):
    desk.say([*TURN, *MARK], boundaries=[NUM_TURN])
    desk.offload()
    desk.threads.run()
    assert desk.model.committed_kv_bytes == 0
    assert desk.say(NEXT, boundaries=[len(NEXT)]) == NUM_TURN
    desk.reload()
    assert desk.say([*NEXT, 1, 2, 3]) == len(NEXT), "the boundary is the last that both have"


def test_a_snapshot_that_was_evicted_is_read_without_the_tokens_before_it(desk: Desk, tmp_path: Path):
    desk.say([*TURN, *MARK], boundaries=[NUM_TURN])
    desk.tend()
    (model,) = desk.engine.prefixes.models
    while model.kv.groups[1].pool.num_cached:
        model.kv.blocks.evict(1)
    for path in tmp_path.glob("*/*-0.kv"):  # all but that with the tokens of the snapshot's own block
        if len(TURN) % BLOCK_TOKENS != int.from_bytes(path.read_bytes()[12:16], "little"):
            path.unlink()
    assert desk.say(NEXT) == NUM_TURN
    assert desk.disk.restored_tokens == NUM_TURN


def test_of_two_snapshots_the_one_in_memory_is_used_if_it_is_further(desk: Desk):
    desk.say([*TURN[:150], *MARK], boundaries=[150])
    desk.tend()
    desk.engine.trim_kv()
    desk.say([*TURN, *MARK], boundaries=[NUM_TURN], cache_to_disk=False)
    assert desk.say(NEXT) == NUM_TURN
    assert desk.disk.restored_tokens == 150


def test_a_damaged_snapshot_costs_what_comes_behind_the_one_before(desk: Desk, tmp_path: Path):
    desk.say([*TURN[:150], *MARK], boundaries=[150])
    desk.tend()
    before = set(states(tmp_path))
    desk.say([*TURN, *MARK], boundaries=[NUM_TURN])
    desk.tend()
    for path in set(states(tmp_path)) - before:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    later = desk.killed(tmp_path, hybrid(), num_blocks=400)
    assert later.say(NEXT) == 150, "where one cannot be read, it is looked for again"
    later.close()


def test_a_session_has_its_state(tmp_path: Path):
    directories = {"kv_disk_bytes": 0, "sessions_dir": str(tmp_path / "sessions")}
    desk, told = Desk(tmp_path, hybrid(), num_blocks=400, **directories), []
    prompt = [*TURN, *MARK]
    desk.say(prompt, boundaries=[NUM_TURN], session="s")
    desk.engine.sessions.save("toy", "s", told.append)
    desk.threads.run()
    desk.engine.check()
    later = Desk(tmp_path, hybrid(), num_blocks=400, **directories)
    later.engine.sessions.load("toy", "s", told.append)
    later.threads.run()
    later.engine.check()
    assert told == [None, None]
    (status,) = later.engine.sessions.statuses()
    assert status.num_tokens == len(prompt) + 9
    answer = expected_tokens(prompt, 10, has_state=True)
    assert later.say([*prompt, *answer, 3, 4]) == len(prompt) + 9
    later.engine.sessions.remove("toy", "s")
    desk.engine.sessions.remove("toy", "s")
    later.close()
    desk.close()
