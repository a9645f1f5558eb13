"""Whatever is done to files of cached prefixes: answers stay right, nobody hangs, nothing else is touched."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.engine.offload.test_warm_prefixes import PROMPT, Desk
from tests.hostile.state import CONTENT, KIND, Damage, date_in_future, swap

pytestmark = pytest.mark.native

OTHER = [3, *PROMPT]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the prefixes of two prompts."""
    directory = tmp_path_factory.mktemp("saved") / "kv"
    desk = Desk(directory)
    desk.say(PROMPT)
    desk.say(OTHER)
    desk.reload()
    desk.threads.run()
    desk.close()
    return directory


def files_of(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.kv"))


def check_answers(directory: Path, **settings: object) -> int:
    """Tokens that were cached. Desk.say() compares the answers."""
    desk = Desk(directory, **settings)
    cached = desk.say(PROMPT) + desk.say(OTHER)
    desk.reload()
    desk.threads.run()
    desk.close()
    return cached


def test_untouched_files_are_found(saved: Path):
    assert check_answers(saved) == len(PROMPT) + len(OTHER) - 2


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files_are_as_if_they_were_not_there(saved: Path, tmp_path: Path, seed: int):
    rng = random.Random(seed)
    directory = shutil.copytree(saved, tmp_path / "kv")
    (tmp_path / "beside").write_text("untouched")
    damages: tuple[Damage, ...] = CONTENT + KIND
    for path in rng.sample(files_of(directory), rng.choice((1, 5, 30))):
        rng.choice(damages)(path, rng)
    check_answers(directory)
    assert (tmp_path / "beside").read_text() == "untouched"
    assert check_answers(directory) > 0, "what was damaged was replaced, if no directory is in its way"


@pytest.mark.parametrize("seed", range(10))
def test_sound_files_in_other_places_are_not_believed(saved: Path, tmp_path: Path, seed: int):
    rng = random.Random(seed)
    directory = shutil.copytree(saved, tmp_path / "kv")
    for _ in range(20):
        swap(files_of(directory), rng)
    check_answers(directory)


def test_files_of_another_key_are_not_believed(saved: Path, tmp_path: Path):
    directory = shutil.copytree(saved, tmp_path / "kv")
    assert check_answers(directory, state_key=bytes(31) + b"1") == 0
    theirs = {path.parent.name for path in files_of(directory)}
    ours = {path.parent.name for path in files_of(saved)}
    mine = (theirs - ours).pop()
    shutil.rmtree(directory / mine)
    shutil.copytree(saved / ours.pop(), directory / mine)  # forged: right name of the directory, wrong key
    assert check_answers(directory, state_key=bytes(31) + b"1") == 0


def test_files_dated_in_the_future_are_not_kept_for_ever(saved: Path, tmp_path: Path):
    directory = shutil.copytree(saved, tmp_path / "kv")
    old = files_of(directory)
    for path in old:
        date_in_future(path, random.Random())
    limit = sum(path.stat().st_size for path in old)
    desk = Desk(directory, kv_disk_bytes=limit)
    for first in (4, 5):
        desk.say([first, *PROMPT])
        desk.reload()
        desk.threads.run()
    assert desk.say([5, *PROMPT]) == len(PROMPT), "the latest was kept"
    assert not all(path.exists() for path in old)
    desk.close()


def test_a_directory_that_others_can_write_to_is_not_used(
    saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    directory = shutil.copytree(saved, tmp_path / "kv")
    directory.chmod(0o777)
    assert check_answers(directory) == 0
    (message,) = caplog.messages
    assert message == (
        f"prefixes are not kept on disk in {directory}: others can write to {directory} (mode 0777): "
        "make that impossible by chmod go-w"
    )
    assert files_of(directory) == [directory / path.relative_to(saved) for path in files_of(saved)]


def test_files_of_older_versions_are_deleted(tmp_path: Path):
    old = tmp_path / ("0123456789" * 4)
    old.mkdir()
    (old / "00.kv").write_bytes(b"unauthenticated")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.kv").touch()
    Desk(tmp_path).close()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
