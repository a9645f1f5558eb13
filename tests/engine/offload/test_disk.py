"""What may go to disk, what is erased from it, and how all get on without one that is full or hangs."""

from __future__ import annotations

import errno
import os
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puna.engine.offload.disk import PATIENCE_S
from puna.engine.offload.session_status import SessionError
from tests.engine.offload.saved_sessions import save
from tests.engine.offload.test_warm_prefixes import PROMPT, Desk
from tests.engine.toy import ToyModel, expected_tokens, run_all

pytestmark = pytest.mark.native


@pytest.fixture
def desk(tmp_path: Path):
    desk = Desk(tmp_path)
    yield desk
    desk.close()


def files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.kv"))


def full_blocks(directory: Path) -> set[str]:
    """Names of the files whose block has all of its tokens."""
    fronts = {path.name: path.read_bytes()[:16] for path in files(directory)}
    return {name for name, front in fronts.items() if struct.unpack("<8sII", front)[2] == 16}


def put_away(desk: Desk) -> None:
    desk.reload()
    desk.threads.run()


def test_what_is_not_for_the_disk_stays_in_memory(desk: Desk, tmp_path: Path):
    assert desk.say(PROMPT, cache_to_disk=False) == 0
    assert desk.say(PROMPT, cache_to_disk=False) == len(PROMPT) - 1
    put_away(desk)
    assert files(tmp_path) == []
    assert desk.say(PROMPT) == 0


def test_what_somebody_else_needed_too_goes_to_disk_as_far_as_they_did(desk: Desk, tmp_path: Path):
    desk.say(PROMPT, cache_to_disk=False)
    assert desk.say([*PROMPT[:100], 5], cache_salt="tenant", cache_to_disk=False) == 0
    assert desk.say([*PROMPT[:100], 6]) == 100
    put_away(desk)
    assert len(full_blocks(tmp_path)) == 6
    assert desk.say(PROMPT) == 100


def test_what_is_on_disk_is_found_by_who_writes_nothing_there(desk: Desk, tmp_path: Path):
    desk.say(PROMPT)
    put_away(desk)
    before = files(tmp_path)
    assert desk.say([*PROMPT, 3, 3] * 2, cache_to_disk=False) >= len(PROMPT) - 1
    put_away(desk)
    assert files(tmp_path) == before


REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 80),  # tokens of a common beginning
        st.lists(st.integers(0, 2), min_size=1, max_size=20),
        st.sampled_from(["", "tenant"]),
        st.booleans(),
    ),
    max_size=6,
)


@settings(max_examples=30, deadline=None)
@given(requests=REQUESTS)
def test_the_disk_has_what_it_would_have_without_those_who_must_not_be_there(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[int, list[int], str, bool]]
):
    found = []
    for with_all in (True, False):
        directory = tmp_path_factory.mktemp("kv")
        desk = Desk(directory)
        for start, end, salt, to_disk in requests:
            if with_all or to_disk:
                desk.say(PROMPT[:start] + end, cache_salt=salt, cache_to_disk=to_disk)
        put_away(desk)
        desk.close()
        found.append((full_blocks(directory), {path.name for path in files(directory)}))
    assert found[0][0] == found[1][0]
    assert found[0][1] <= found[1][1], "a longer block that must not be there hides a partial one"


def test_a_session_that_is_not_for_the_disk_is_not_saved(desk: Desk):
    desk.say(PROMPT, session="a", cache_to_disk=False)
    with pytest.raises(SessionError, match="not for the disk"):
        save(desk.engine.sessions, "toy", "a")
    put_away(desk)


def test_salts_are_not_on_disk(desk: Desk, tmp_path: Path):
    desk.say(PROMPT, cache_salt="secret salt")
    put_away(desk)
    assert files(tmp_path)
    assert not any(b"secret salt" in path.read_bytes() or "secret" in str(path) for path in files(tmp_path))


def test_a_model_that_is_erased_leaves_nothing_and_keeps_nothing(desk: Desk, tmp_path: Path):
    told: list[bool] = []
    desk.engine.attach_model("other", ToyModel(salt=1, clock=desk.engine._clock))
    desk.say(PROMPT)
    put_away(desk)
    assert files(tmp_path)
    desk.say([5, *PROMPT])
    desk.engine.prefixes.erase_model("other", lambda: told.append(True))
    desk.threads.run()
    assert files(tmp_path)
    desk.engine.prefixes.erase_model("toy", lambda: told.append(True))
    desk.threads.run()
    assert len(told) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["written"]
    desk.engine.unload_model("toy")
    desk.threads.run()
    assert [path.name for path in tmp_path.iterdir()] == ["written"]
    desk.engine.attach_model("toy", ToyModel(clock=desk.engine._clock))
    assert desk.say(PROMPT) == 0
    put_away(desk)
    assert desk.say(PROMPT) == len(PROMPT) - 1, "loaded again, it keeps again"


def test_an_erased_model_that_is_being_saved_is_not(desk: Desk, tmp_path: Path):
    desk.say(PROMPT)
    desk.engine.unload_model("toy")
    desk.engine.prefixes.erase_model("toy", lambda: None)
    desk.threads.run()
    assert list(tmp_path.iterdir()) == []
    desk.engine.attach_model("toy", ToyModel(clock=desk.engine._clock))


def wait(desk: Desk, seconds: float) -> None:
    desk.engine.prefixes.tend()
    desk.engine._clock.now_s += seconds
    desk.engine.prefixes.tend()


def test_who_waits_for_a_disk_that_does_not_answer_computes(desk: Desk, caplog: pytest.LogCaptureFixture):
    desk.say(PROMPT)
    put_away(desk)
    request_id = desk.submit(PROMPT)
    assert not desk.engine.has_work
    wait(desk, PATIENCE_S / 2)
    assert not desk.engine.has_work
    wait(desk, PATIENCE_S / 2)
    results = run_all(desk.engine)
    assert results.tokens[request_id] == expected_tokens(PROMPT, 10)
    assert len(caplog.messages) == 1
    again = desk.submit([5, *PROMPT])
    assert desk.engine.has_work, "nobody else waits for it"
    assert run_all(desk.engine).tokens[again] == expected_tokens([5, *PROMPT], 10)
    desk.threads.run()  # now it does
    put_away(desk)
    assert desk.say(PROMPT) == len(PROMPT) - 1


def test_a_disk_that_stops_answering_while_it_is_read(desk: Desk):
    desk.say(PROMPT)
    put_away(desk)
    request_id = desk.submit(PROMPT)
    assert desk.threads.run_one(reads=True)  # has looked
    wait(desk, PATIENCE_S)
    assert run_all(desk.engine).tokens[request_id] == expected_tokens(PROMPT, 10)
    desk.engine.check()
    desk.threads.run()
    desk.engine.check()


def test_slow_progress_is_waited_for(desk: Desk):
    desk.say(PROMPT)
    put_away(desk)
    desk.submit(PROMPT)
    wait(desk, 0.9 * PATIENCE_S)
    assert desk.threads.run_one(reads=True)
    wait(desk, 0.9 * PATIENCE_S)
    assert not desk.engine.has_work
    desk.run()
    assert desk.disk.restored_tokens == 21 * 16


def test_a_disk_that_takes_nothing_delays_neither_memory_nor_the_end(desk: Desk, tmp_path: Path):
    told: list[bool] = []
    desk.say(PROMPT)
    desk.offload()
    desk.engine.prefixes.save_all(lambda: told.append(True))
    wait(desk, PATIENCE_S)
    assert told
    wait(desk, 10.0)
    assert desk.model.committed_kv_bytes == 0
    desk.engine.unload_model("toy")
    desk.threads.run()
    assert files(tmp_path) == []
    desk.engine.attach_model("toy", ToyModel(clock=desk.engine._clock))
    desk.say(PROMPT)
    put_away(desk)
    assert files(tmp_path), "it answers again"


def test_a_model_that_is_loaded_again_does_not_wait_for_a_save_that_hangs(desk: Desk):
    desk.say(PROMPT)
    desk.reload()
    request_id = desk.submit(PROMPT)
    assert not desk.engine.has_work
    wait(desk, PATIENCE_S)
    assert run_all(desk.engine).tokens[request_id] == expected_tokens(PROMPT, 10)
    desk.threads.run()


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", ["open", "mkdir", "writev", "utime", "replace"])
def test_a_full_disk_costs_only_what_is_not_kept(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
):
    real = getattr(os, call)

    def fails(*arguments: object, **fields: object) -> object:
        creates = call != "open" or arguments[1] & os.O_CREAT
        if creates:
            raise FULL
        return real(*arguments, **fields)

    desk.say(PROMPT)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        put_away(desk)
        assert desk.say(PROMPT) == 0
    assert caplog.messages == [f"cannot save cached prefixes in {tmp_path}: No space left on device"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "written"]
    put_away(desk)
    assert desk.say(PROMPT) == len(PROMPT) - 1


def test_a_clock_that_jumps_harms_nobody(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    year_ns = 365 * 86400 * 10**9
    now_ns = time.time_ns()
    for number, moved_ns in enumerate((0, year_ns, -year_ns, 0)):
        monkeypatch.setattr("time.time_ns", lambda ns=now_ns + moved_ns: ns)
        desk.say([number, *PROMPT])
        put_away(desk)
        assert desk.say([number, *PROMPT]) == len(PROMPT)
